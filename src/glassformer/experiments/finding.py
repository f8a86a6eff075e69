"""Findings: what an experiment hands back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = dict[str, Any]  # words and numbers, by column
Progress = Callable[[str, int, int | None], None]  # what is being done, how much of it is done, of how much


@dataclass(frozen=True)
class Finding:
    """What was done, what came out, and whether that is what the notes say."""

    method: str  # what was done, so that a reader could do it again
    measured: str  # the result, in a sentence or two with their numbers
    holds: bool  # whether the claim is true of these numbers
    facts: dict[str, float]  # the numbers that the verdict rests on, by name
    rows: Sequence[Row]  # every point of the figure, for data.csv; a column that a row lacks is empty
    draw: Callable[[], Figure]


def silent(name: str, done: int, total: int | None) -> None:
    """Progress that nobody wants to see."""
