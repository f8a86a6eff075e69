"""Averaging: the mean of many good weights is often better than any of them.

A moving average follows the weights as they train; checkpoint averaging takes the mean of the last few saved.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from glassformer.training.distribution import local, sharded


class MovingAverage:
    """average ← d · average + (1 - d) · weights, after every step, with d growing to `decay`.

    d is at most (1 + step) / (10 + step), so that the random weights of the beginning are soon forgotten.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.weights: list[Tensor] = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
        self.averages = [weight.detach().clone() for weight in self.weights]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Take in the weights after this step."""
        decay = min(self.decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(_locals(self.averages), _locals(self.weights), 1 - decay)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Within this context the model has the averaged weights."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        averages, trained = _locals(self.averages), _locals(self.weights)
        kept = [weight.clone() for weight in trained]
        torch._foreach_copy_(trained, averages)
        torch._foreach_copy_(averages, kept)

    def state(self) -> dict[str, Tensor]:
        """The averages by their names."""
        return dict(zip(self.names, self.averages, strict=True))

    @torch.no_grad()
    def load(self, state: Mapping[str, Tensor]) -> None:
        """Go on from what `state` returned."""
        for name, average in zip(self.names, self.averages, strict=True):
            average.copy_(sharded(state[name], average))


def mean(states: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of several sets of weights, summed in float64; tensors of whole numbers are the last set's."""
    total: dict[str, Tensor] = {}
    last: Mapping[str, Tensor] = {}
    count = 0
    for count, last in enumerate(states, start=1):  # noqa: B007
        for name, tensor in last.items():
            if tensor.is_floating_point():
                total[name] = total[name] + tensor if name in total else tensor.double()
    return {name: (total[name] / count).to(tensor) if name in total else tensor for name, tensor in last.items()}


def _locals(tensors: list[Tensor]) -> list[Tensor]:
    return [local(tensor) for tensor in tensors]
