"""Averaging: the mean of several sets of weights often generalises better than the last set.

A moving average is updated after every step; checkpoint averaging takes the mean of the last few checkpoints. Either
also averages the running averages of batch norms, as near as can be to those of the weights that come of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from glassformer.parts.norms import running_averages
from glassformer.training.distribution import local, sharded


class MovingAverage:
    """average ← d · average + (1 - d) · weights, after every step, with d growing to `decay`.

    d is at most (1 + step) / (10 + step), so that the random initial weights soon lose their influence.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        trained = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
        self.weights: dict[str, Tensor] = {**trained, **running_averages(model)}
        self.averages = {name: weight.detach().clone() for name, weight in self.weights.items()}

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Update the averages with the weights after this step."""
        decay = min(self.decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(_shards(self.averages), _shards(self.weights), 1 - decay)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Give the model the averaged weights while this context is open."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        averages, trained = _shards(self.averages), _shards(self.weights)
        kept = [weight.clone() for weight in trained]
        torch._foreach_copy_(trained, averages)
        torch._foreach_copy_(averages, kept)

    def state(self) -> dict[str, Tensor]:
        """The averages by parameter name."""
        return self.averages

    @torch.no_grad()
    def load(self, state: Mapping[str, Tensor]) -> None:
        """Continue from what `state` returned."""
        for name, average in self.averages.items():
            average.copy_(sharded(state[name], average))


class RunningAverages:
    """The running averages of a model's batch norms, which every forward pass in training changes.

    `kept` are those of the steps that have ended: what a checkpoint holds. A step that is broken off or skipped changes
    nothing of them.
    """

    def __init__(self, model: nn.Module) -> None:
        self._now = running_averages(model)
        self.kept = {name: each.clone() for name, each in self._now.items()}

    @torch.no_grad()
    def keep(self, skipped: Tensor | None = None) -> None:
        """End a step, or go back to what the last one left if this one is `skipped`; the device need not wait."""
        for name, now in self._now.items():
            if skipped is not None:
                now.copy_(torch.where(skipped, self.kept[name], now))
            self.kept[name].copy_(now)


def mean(states: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of several sets of weights, summed in float64; integer tensors are taken from the last set."""
    total: dict[str, Tensor] = {}
    last: Mapping[str, Tensor] = {}
    count = 0
    for count, last in enumerate(states, start=1):  # noqa: B007
        for name, tensor in last.items():
            if tensor.is_floating_point():
                total[name] = total[name] + tensor if name in total else tensor.double()
    return {name: (total[name] / count).to(tensor) if name in total else tensor for name, tensor in last.items()}


def _shards(tensors: Mapping[str, Tensor]) -> list[Tensor]:
    return [local(tensor) for tensor in tensors.values()]
