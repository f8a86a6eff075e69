"""Averaging: the mean of several sets of weights often generalises better than the last set.

A moving average is updated after every step; checkpoint averaging takes the mean of the last few checkpoints.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from glassformer.training.distribution import local, sharded


class MovingAverage:
    """average ← d · average + (1 - d) · weights, after every step, with d growing to `decay`.

    d is at most (1 + step) / (10 + step), so that the random initial weights soon lose their influence.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.weights = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
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
