"""Distribution: several processes, one training.

Every process (rank) takes its own batches; gradients are averaged over all, so that all take the same step. With DDP
each rank holds the whole model; with FSDP2 each holds a share of every block and borrows the rest for the moment it
needs it. Alone, everything here is free.

`torchrun --nproc-per-node 8 …` starts the processes and ends all when one fails.
"""

from __future__ import annotations

import os
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

from glassformer.errors import TrainingError
from glassformer.training.devices import resolve

Result = TypeVar("Result")
PATIENCE = timedelta(minutes=30)  # how long ranks wait for each other, above all for rank 0 while it validates


@dataclass(frozen=True)
class Distribution:
    """Who this process is among how many, and what they do together."""

    device: torch.device
    rank: int = 0
    world: int = 1
    strategy: Literal["ddp", "fsdp"] = "ddp"

    @property
    def main(self) -> bool:
        """Whether this process writes, validates and talks."""
        return self.rank == 0

    @property
    def sharded(self) -> bool:
        """Whether parameters are spread over the ranks."""
        return self.world > 1 and self.strategy == "fsdp"

    def wrap(self, module: nn.Module, blocks: list[nn.Module]) -> nn.Module:
        """The module, ready to be trained by all; the ranks begin with rank 0's weights."""
        if self.world == 1:
            return module
        with torch.no_grad():
            for tensor in [*module.parameters(), *module.buffers()]:
                dist.broadcast(tensor, 0)
        if self.strategy == "ddp":
            new = "forward_sync_buffers" in signature(DistributedDataParallel).parameters  # and the old name deprecated
            still: dict[str, Any] = {"forward_sync_buffers" if new else "broadcast_buffers": False}
            return DistributedDataParallel(module, gradient_as_bucket_view=True, **still)
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh(self.device.type, (self.world,))
        for block in blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(module, mesh=mesh)
        return module

    def accumulating(self, module: nn.Module, last: bool) -> AbstractContextManager[None]:
        """Around the passes of a batch: gradients travel with the last batch of a step only."""
        if isinstance(module, DistributedDataParallel) and not last:
            return module.no_sync()
        if self.sharded:
            module.set_requires_gradient_sync(last)  # type: ignore[operator]
        return nullcontext()

    def sum(self, value: Tensor) -> Tensor:
        """A tensor of the device, summed over the ranks, without waiting for it."""
        if self.world > 1:
            dist.all_reduce(value)
        return value

    def count(self, *numbers: int) -> list[int]:
        """Whole numbers, summed over the ranks by their processors: no device is waited for."""
        if self.world == 1:
            return list(numbers)
        together = torch.tensor(numbers)
        dist.all_reduce(together)
        return together.tolist()

    def share(self, number: float) -> float:
        """Rank 0's number, to all."""
        if self.world == 1:
            return number
        value = torch.tensor(number, dtype=torch.float64)
        dist.broadcast(value, 0)
        return value.item()

    def gather(self, value: Tensor) -> list[Tensor]:
        """A tensor of the CPU from every rank, in their order."""
        if self.world == 1:
            return [value]
        everyone = [torch.empty_like(value) for _ in range(self.world)]
        dist.all_gather(everyone, value)
        return everyone

    def alone(self, work: Callable[[], Result]) -> Result | None:
        """Let rank 0 work while the others wait; its failure is everybody's."""
        failure: Exception | None = None
        result = None
        if self.main:
            try:
                result = work()
            except Exception as error:  # told to the others first, then raised
                failure = error
        failed, *_ = self.count(int(failure is not None))
        if failure is not None:
            raise failure
        if failed:
            raise TrainingError("rank 0 has failed: its own message says why")
        return result


@contextmanager
def distribution(device: str = "auto", strategy: Literal["ddp", "fsdp"] = "ddp") -> Iterator[Distribution]:
    """The part of this process in the training: alone, or as torchrun's environment says."""
    world, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
    if world == 1:
        yield Distribution(resolve(device))
        return
    kind = resolve(device).type
    own = resolve(f"cuda:{os.environ.get('LOCAL_RANK', rank)}") if kind == "cuda" else resolve(kind)
    if kind == "cuda":
        torch.cuda.set_device(own)
    dist.init_process_group("cpu:gloo,cuda:nccl" if kind == "cuda" else "gloo", timeout=PATIENCE)
    try:
        yield Distribution(own, rank, world, strategy)
    finally:
        dist.destroy_process_group()


def whole(tensor: Tensor) -> Tensor:
    """A tensor with all its shards; every rank must ask."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def local(tensor: Tensor) -> Tensor:
    """The rank's own share of a tensor: the same memory."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def sharded(tensor: Tensor, like: Tensor) -> Tensor:
    """The rank's shard of a tensor that every rank holds whole, cut and placed as `like` is."""
    tensor = tensor.to(like.device)
    if not hasattr(like, "full_tensor"):
        return tensor
    from torch.distributed.tensor import DTensor, Replicate

    mesh = like.device_mesh  # type: ignore[attr-defined]
    everywhere = DTensor.from_local(tensor.contiguous(), mesh, [Replicate()], run_check=False)
    return everywhere.redistribute(placements=like.placements)  # type: ignore[attr-defined]
