"""What training asks of the data and of those who watch it, and what it answers in the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from torch import nn

from glassformer.tasks.protocol import Batch

Validate = Callable[[nn.Module], dict[str, float]]
Log = Callable[[dict[str, Any]], None]
Reason = Literal["steps", "patience"]
Chosen = Literal["last", "moving average", "best", "mean of checkpoints"]


class Batches(Protocol):
    """Batches without end, from a place that can be saved."""

    @property
    def epoch(self) -> int:
        """How often the data has been gone through."""
        ...

    @property
    def tokens(self) -> int:
        """How many tokens of the examples were handed out so far, to all ranks."""
        ...

    def share(self, rank: int, ranks: int) -> Iterator[Batch]:
        """A rank's batches, epoch after epoch: every `ranks`-th from here on, of which the others are not made.

        When a batch is handed out, it and those of the other ranks beside it count as done in `state_dict`.
        """
        ...

    def state_dict(self) -> dict[str, Any]:
        """The place in the data, as JSON can hold it."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from that place."""
        ...


@dataclass(frozen=True)
class Outcome:
    """How training ended: after which step, with which best value of what was watched, why, and on which weights."""

    step: int
    best: float | None
    reason: Reason
    weights: Chosen
