"""What training asks of the data and of those who watch it, and what it answers in the end.

B batch, S source length, T target length
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

Validate = Callable[[nn.Module], dict[str, float]]
Log = Callable[[dict[str, Any]], None]
Reason = Literal["steps", "patience"]
Chosen = Literal["last", "moving average", "best", "mean of checkpoints"]


class Batch(Protocol):
    """Sentences to learn from together: what is read, what the decoder reads, and what it should say."""

    @property
    def source(self) -> Tensor:
        """Source tokens (B, S)."""
        ...

    @property
    def source_mask(self) -> Tensor:
        """True where a source token is real, (B, S)."""
        ...

    @property
    def target_in(self) -> Tensor:
        """What the decoder reads (B, T): a start token, then the target."""
        ...

    @property
    def target_out(self) -> Tensor:
        """What it should say after each (B, T): the target, then an end token."""
        ...

    @property
    def target_mask(self) -> Tensor:
        """True where `target_out` is real, (B, T)."""
        ...

    @property
    def source_tokens(self) -> int:
        """How many source tokens are real."""
        ...

    @property
    def target_tokens(self) -> int:
        """How many target tokens are real: the number of True in `target_mask`."""
        ...

    def pin(self) -> Batch:
        """The same batch in page-locked memory, from which a GPU copies by itself."""
        ...

    def to(self, device: torch.device) -> Batch:
        """The same batch on a device, without waiting for it."""
        ...


class Batches(Protocol):
    """Batches without end, from a place that can be saved."""

    @property
    def epoch(self) -> int:
        """How often the data has been gone through."""
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
