"""The interfaces of training: batches, callbacks, and the result."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from torch import nn

from glassformer.tasks.protocol import Batch
from glassformer.training.checkpoints import Selection

Validate = Callable[[nn.Module], dict[str, float]]
Look = Callable[[nn.Module, int], None]  # at the model after so many steps
Log = Callable[[dict[str, Any]], None]
Reason = Literal["steps", "patience"]


class Batches(Protocol):
    """An endless sequence of batches whose position can be saved."""

    @property
    def epoch(self) -> int:
        """How many complete passes over the data are done."""
        ...

    @property
    def tokens(self) -> int:
        """How many tokens of the examples all ranks have received so far."""
        ...

    def for_rank(self, rank: int, ranks: int) -> Iterator[Batch]:
        """The batches of one rank, epoch after epoch: every `ranks`-th from the current position; only these are built.

        When a batch is yielded, `state_dict` counts it and the batches of the other ranks in the same round as done.
        """
        ...

    def state_dict(self) -> dict[str, Any]:
        """The position in the data, as JSON values."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a position."""
        ...


@dataclass(frozen=True)
class Outcome:
    """How training ended: the last step, the best watched value, the reason, and which weights the model has."""

    step: int
    best: float | None
    reason: Reason
    weights: Selection
