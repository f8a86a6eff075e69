"""Steps: forward and backward passes whose gradients add up, then one update of the weights.

`Steps` does each as it comes. `CapturedSteps` is for a GPU, which is faster than Python can tell it what to do: the
work on a batch of one shape is captured once, as a CUDA graph, and then replayed with other numbers; so is the update.
Both do the same arithmetic in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from glassformer.data.planning import Shape
from glassformer.errors import TrainingError
from glassformer.parts.checks import reading_nothing
from glassformer.tasks.protocol import Batch
from glassformer.training.averaging import RunningAverages
from glassformer.training.distribution import Distribution, whole
from glassformer.training.meter import Meter
from glassformer.training.optimisers import Optimiser

MOST = 96  # graphs: batches of further shapes are computed without one
Finish = Callable[[float], None]  # changes the weights, with the learning rates times a factor


@dataclass(frozen=True)
class Counted:
    """A batch in the form in which it is computed, and what the loop counts of it."""

    form: Batch
    targets: int
    tokens: int
    padded_tokens: int

    @classmethod
    def of(cls, batch: Batch, shape: Shape | None = None) -> Counted:
        """A batch as it is, or in the shape that steps are prepared for."""
        if isinstance(batch, Counted):
            return batch
        form = batch if shape is None else batch.fitted(shape)
        return cls(form, batch.targets, batch.tokens, form.padded_tokens)

    def fitted(self, shape: Shape) -> Counted:
        """The same in another shape."""
        form = self.form.fitted(shape)
        return replace(self, form=form, padded_tokens=form.padded_tokens)

    def pin(self) -> Counted:
        """The same in page-locked memory."""
        return replace(self, form=self.form.pin())

    def to(self, device: torch.device) -> Counted:
        """The same on a device."""
        return replace(self, form=self.form.to(device))


@dataclass
class Setting:
    """What a step works on."""

    objective: nn.Module
    parameters: list[nn.Parameter]
    optimiser: Optimiser
    distribution: Distribution
    meter: Meter
    bf16: bool
    clip: float
    running: RunningAverages

    def loss(self, batch: Batch) -> Tensor:
        """The summed loss of a batch."""
        with torch.autocast(self.distribution.device.type, torch.bfloat16, enabled=self.bf16):
            return self.objective(batch)  # type: ignore[no-any-return]

    def norm(self) -> Tensor:
        """The norm of the gradient of all parameters together."""
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        return whole(nn.utils.get_total_norm(gradients))

    def update(self, loss: Tensor, targets: Any) -> Callable[[Any], None]:
        """The next update for the summed loss of so many targets; it changes nothing until it is called."""
        world = self.distribution.world
        norm = self.norm() * (world / targets)  # gradients are averaged over the ranks
        bad = ~(norm + loss).isfinite()
        clip = norm.div(self.clip).clamp_min_(1.0) if self.clip else torch.ones_like(norm)
        change = self.optimiser.prepare(clip * (targets / world), bad)

        def finish(lr_factor: Any) -> None:
            change(lr_factor)
            self.running.keep(bad)
            self.meter.add(loss, targets, norm, bad)

        return finish


class AnySteps(Protocol):
    """What the loop asks for."""

    def begin(self) -> None:
        """Begin a step."""

    def add(self, batch: Batch, last: bool) -> None:
        """Add the gradient of a batch on the host or the device; `last`: it is the last batch of the step."""

    def prepare(self, targets: int) -> Finish:
        """The update for all that was added, which has so many targets on all ranks."""


class Steps:
    """Each operation as it comes."""

    def __init__(self, setting: Setting, prepared: Callable[[], None] | None = None) -> None:
        self.setting, self.prepared = setting, prepared
        self._loss = torch.zeros((), device=setting.distribution.device)

    def begin(self) -> None:
        """Begin a step with no loss."""
        self._loss = torch.zeros((), device=self._loss.device)

    def add(self, batch: Batch, last: bool) -> None:
        """Add the gradient and the loss of a batch; ranks exchange gradients with the last."""
        setting = self.setting
        with setting.distribution.accumulating(setting.objective, last):
            loss = setting.loss(batch.to(self._loss.device))
            loss.backward()  # type: ignore[no-untyped-call]
        self._loss += loss.detach()

    def prepare(self, targets: int) -> Finish:
        """The update, of which all that takes long is computed here."""
        setting, loss = self.setting, self.setting.distribution.sum(self._loss)
        if self.prepared is not None:
            self.prepared()
        update = setting.update(loss, targets)

        def finish(lr_factor: float) -> None:
            update(lr_factor)
            for parameter in setting.parameters:
                parameter.grad = None

        return finish


class Replay(Protocol):
    """Work that was captured."""

    def replay(self) -> None:
        """Do it again, with what the same memory holds now."""


def captured(work: Callable[[], None], pool: Any) -> Replay:
    """The work of a device as a CUDA graph: nothing is done yet. `pool` is memory that all graphs share."""
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    graph.capture_begin(pool=pool, capture_error_mode="thread_local")  # other threads make batches meanwhile
    try:
        work()
    except RuntimeError as error:
        with suppress(RuntimeError):  # which would hide what went wrong
            graph.capture_end()
        told = str(error).split("\n", 1)[0]
        raise TrainingError(f"a step cannot be captured as a CUDA graph ({told}): set train.compile = false") from error
    graph.capture_end()
    return graph


class CapturedSteps:
    """Passes and update as CUDA graphs, one for each shape of a batch; the first batch of a shape is computed without.

    The gradients stay in the same memory from step to step, and so does what a graph reads: the batch, the summed
    loss, the number of targets, the factor of the learning rates. With `lone` batches, each of which is a step and has
    the only shape, gradients are written and not added to what was there.
    """

    def __init__(
        self,
        setting: Setting,
        capture: Callable[[Callable[[], None], Any], Replay] = captured,
        lone: bool = False,
    ) -> None:
        self.setting, self._capture, self._lone = setting, capture, lone
        device = setting.distribution.device
        self._pool = torch.cuda.graph_pool_handle() if device.type == "cuda" else None
        self._seen: set[Any] = set()
        self._graphs: dict[Any, tuple[Batch, Replay, list[Tensor]]] = {}
        self._loss = torch.zeros((), device=device)
        self._numbers = torch.zeros(2, device=device)  # targets, and the factor of the learning rates
        self._update: Replay | None = None
        self._stale = True  # whether the update is to be captured anew
        self._learning: list[nn.Parameter] | None = None  # those that have gradients

    def begin(self) -> None:
        """What a step begins with is what the last one left."""

    def add(self, batch: Batch, last: bool) -> None:
        """Add the gradient and the loss of a batch, by its graph if there is one."""
        shape = shape_of(batch)
        if shape not in self._graphs and shape in self._seen and len(self._graphs) < MOST:
            own = batch.to(self._loss.device)
            # Positions may move to a larger table: a graph goes on reading the one that it was captured with.
            held = [*self.setting.objective.buffers()]
            if self._lone:
                self._forget_gradients()
            self._graphs[shape] = own, self._capture(lambda: self._pass(own), self._pool), held
        if shape in self._graphs:
            own, graph, _ = self._graphs[shape]
            for name, value in vars(batch).items():
                if isinstance(value, Tensor):
                    getattr(own, name).copy_(value, non_blocking=True)
            graph.replay()
        else:
            if getattr(batch, "axes", None):  # which say that nothing in it waits for the device
                self._seen.add(shape)
            self._pass(batch.to(self._loss.device))
            self._keep_gradients()

    def _pass(self, batch: Batch) -> None:
        with reading_nothing() if getattr(batch, "axes", None) else nullcontext():
            loss = self.setting.loss(batch)
        loss.backward()  # type: ignore[no-untyped-call]
        self._loss += loss.detach()

    def _forget_gradients(self) -> None:
        """Let the next pass choose where the gradients are."""
        self._stale = True
        for parameter in self.setting.parameters:
            parameter.grad = None

    def _keep_gradients(self) -> None:
        """Remember whose gradients there are: others are not changed, as without graphs."""
        learning = [parameter for parameter in self.setting.parameters if parameter.grad is not None]
        if self._learning is None or len(learning) != len(self._learning):
            self._learning, self._stale = learning, True

    def prepare(self, targets: int) -> Finish:
        """The update; what it prepares is in its graph, too, so it can be broken off until it is called."""

        def finish(lr_factor: float) -> None:
            numbers = torch.tensor((float(targets), lr_factor))
            numbers = numbers.pin_memory() if self._loss.is_cuda else numbers
            self._numbers.copy_(numbers, non_blocking=True)
            if self._update is not None and not self._stale:
                self._update.replay()
                return
            self._finish()
            if self._graphs or not self._seen:  # or else passes are captured first, which may change the gradients
                # An old graph goes after the new one has come: the memory that all share goes with the last.
                self._update, self._stale = self._capture(self._finish, self._pool), False

        return finish

    def _finish(self) -> None:
        targets, lr_factor = self._numbers.unbind()
        self.setting.update(self._loss, targets)(lr_factor)
        if not (self._lone and self._graphs):
            torch._foreach_zero_([parameter.grad for parameter in self._learning or () if parameter.grad is not None])
        self._loss.zero_()


def shape_of(batch: Batch) -> Any:
    """What a graph depends on: the shapes of a batch's tensors, and its numbers."""
    return type(batch), *(
        (name, tuple(value.shape), value.dtype) if isinstance(value, Tensor) else (name, value)
        for name, value in vars(batch).items()
    )


@contextmanager
def on_own_stream(device: torch.device) -> Iterator[None]:
    """A stream of its own for what is captured: CUDA captures none of the default stream."""
    if device.type != "cuda":
        yield
        return
    before = torch.cuda.current_stream(device)
    stream: torch.cuda.Stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    stream.wait_stream(before)
    try:
        with torch.cuda.stream(stream):
            yield
    finally:
        before.wait_stream(stream)
