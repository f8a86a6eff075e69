"""Distribution: several processes train one model.

Every process (rank) takes its own batches; gradients are averaged over all ranks, so that all take the same step.
With DDP each rank holds the whole model; with FSDP2 each holds a shard of every block, and gathers the other shards
only while it computes that block. With a single process, nothing of this costs time.

`torchrun --nproc-per-node 8 …` starts the processes and ends all of them when one fails.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from inspect import signature
from typing import Any, Literal, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from glassformer.errors import GlassformerError, TrainingError
from glassformer.parts.norms import running_averages
from glassformer.recipe import RecipeWarning
from glassformer.training.devices import resolve

Result = TypeVar("Result")
TIMEOUT = timedelta(minutes=30)  # how long ranks wait for each other, mainly for rank 0 while it validates


@dataclass(frozen=True)
class Distribution:
    """The rank of this process, the number of processes, and the operations that they do together."""

    device: torch.device
    rank: int = 0
    world: int = 1
    strategy: Literal["ddp", "fsdp"] = "ddp"

    @property
    def main(self) -> bool:
        """Whether this process writes files, validates and logs."""
        return self.rank == 0

    @property
    def sharded(self) -> bool:
        """Whether each rank holds only a shard of the parameters."""
        return self.world > 1 and self.strategy == "fsdp"

    def wrap(self, module: nn.Module, blocks: list[nn.Module]) -> nn.Module:
        """The module, ready for training on all ranks; all begin with the weights of rank 0."""
        if self.world == 1:
            return module
        if running_averages(module):
            raise TrainingError(
                "a batch norm takes its statistics from the batches of one process: train with one, or set model.norm "
                'to "layer" or "rms"'
            )
        with torch.no_grad():
            for tensor in [*module.parameters(), *module.buffers()]:
                dist.broadcast(tensor, 0)
        if self.strategy == "ddp":
            new = "forward_sync_buffers" in signature(DistributedDataParallel).parameters  # the old name is deprecated
            unsynced: dict[str, Any] = {"forward_sync_buffers" if new else "broadcast_buffers": False}
            return DistributedDataParallel(module, gradient_as_bucket_view=True, **unsynced)
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh(self.device.type, (self.world,))
        for block in blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(module, mesh=mesh)
        return module

    def accumulating(self, module: nn.Module, last: bool) -> AbstractContextManager[None]:
        """A context for the passes of one batch: gradients are exchanged only for the `last` batch of a step."""
        if isinstance(module, DistributedDataParallel) and not last:
            return module.no_sync()
        if self.sharded:
            module.set_requires_gradient_sync(last)  # type: ignore[operator]
        return nullcontext()

    def sum(self, value: Tensor) -> Tensor:
        """A tensor on the device, summed over the ranks; the host does not wait for the result."""
        if self.world > 1:
            dist.all_reduce(value)
        return value

    def count(self, *numbers: int) -> list[int]:
        """Integers, summed over the ranks on the CPU: the host does not wait for the device."""
        if self.world == 1:
            return list(numbers)
        total = torch.tensor(numbers)
        dist.all_reduce(total)
        return total.tolist()

    def broadcast(self, number: float) -> float:
        """The number of rank 0, on every rank."""
        if self.world == 1:
            return number
        value = torch.tensor(number, dtype=torch.float64)
        dist.broadcast(value, 0)
        return value.item()

    def gather(self, value: Tensor) -> list[Tensor]:
        """A CPU tensor from every rank, in the order of the ranks."""
        if self.world == 1:
            return [value]
        values = [torch.empty_like(value) for _ in range(self.world)]
        dist.all_gather(values, value)
        return values

    def seed(self, seed: int) -> None:
        """Seed the generators of dropout and samples; every rank has its own random numbers."""
        torch.manual_seed(seed * 1_000_003 + self.rank)

    def random_state(self) -> list[str]:
        """The generator states of every rank, in hexadecimal: CPU, then the device if it is not the CPU."""
        return [bytes(each.tolist()).hex() for each in self.gather(torch.cat(self.own_random_state()))]

    def own_random_state(self) -> list[Tensor]:
        """The generator states of this rank: CPU, then the device if it is not the CPU."""
        on_device = [] if self.device.type == "cpu" else [torch.get_device_module(self.device).get_rng_state()]
        return [torch.get_rng_state(), *on_device]

    def set_random_state(self, own: list[Tensor]) -> None:
        """Continue from `own_random_state`."""
        torch.set_rng_state(own[0])
        for state in own[1:]:
            torch.get_device_module(self.device).set_rng_state(state)

    def load_random_state(self, saved: list[str], seed: int) -> None:
        """Continue from `random_state`; a rank without a saved state, or on another kind of device, is seeded."""
        size, on_cpu = torch.get_rng_state().numel(), self.device.type == "cpu"
        both = bytes.fromhex(saved[self.rank]) if self.rank < len(saved) else b""
        if len(both) < size or on_cpu != (len(both) == size):
            self.seed(seed)
            return
        state = torch.tensor(list(both), dtype=torch.uint8)
        self.set_random_state([state[:size]] if on_cpu else [state[:size], state[size:]])

    def alone(self, work: Callable[[], Result]) -> Result | None:
        """Call `work` on rank 0 while the other ranks wait; if it fails, all ranks fail."""
        failure: Exception | None = None
        result = None
        if self.main:
            try:
                result = work()
            except Exception as error:  # the other ranks must know before it is raised
                failure = error
        failed, *_ = self.count(int(failure is not None))
        if failure is not None:
            raise failure
        if failed:
            raise TrainingError("rank 0 failed: see its own error message")
        return result


@contextmanager
def distribution(device: str = "auto", strategy: Literal["ddp", "fsdp"] = "ddp") -> Iterator[Distribution]:
    """The distribution of this process: single, or as the environment variables of torchrun define it."""
    world, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
    if world == 1:
        if strategy != "ddp":
            told = "train.strategy has no effect: a single process trains; start several with torchrun"
            warnings.warn(told, RecipeWarning, stacklevel=3)
        yield Distribution(resolve(device))
        return
    kind = resolve(device).type
    own = resolve(f"cuda:{os.environ.get('LOCAL_RANK', rank)}") if kind == "cuda" else resolve(kind)
    if kind == "cuda":
        torch.cuda.set_device(own)
    dist.init_process_group("cpu:gloo,cuda:nccl" if kind == "cuda" else "gloo", timeout=TIMEOUT)
    try:
        yield Distribution(own, rank, world, strategy)
    except RuntimeError as error:
        if isinstance(error, GlassformerError) or not (isinstance(error, dist.DistError) or "gloo" in str(error)):
            raise
        raise TrainingError(
            f"rank {rank} has lost another rank: see that one's own error message, then continue with --resume"
        ) from None
    finally:
        dist.destroy_process_group()


def whole(tensor: Tensor) -> Tensor:
    """A tensor with all its shards; every rank must call this."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def local(tensor: Tensor) -> Tensor:
    """The rank's own shard of a tensor, without a copy."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def sharded(tensor: Tensor, like: Tensor) -> Tensor:
    """The rank's shard of a tensor that every rank holds completely, sharded like `like`."""
    tensor = tensor.to(like.device)
    if not hasattr(like, "full_tensor"):
        return tensor
    from torch.distributed.tensor import DTensor, Replicate

    mesh = like.device_mesh  # type: ignore[attr-defined]
    replicated = DTensor.from_local(tensor.contiguous(), mesh, [Replicate()], run_check=False)
    return replicated.redistribute(placements=like.placements)  # type: ignore[attr-defined]
