"""Findings: what an experiment returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = dict[str, Any]  # words and numbers, by column
Progress = Callable[[str, int, int | None], None]  # what is being done, how much of it is done, of how much


class Rows(list[Row]):
    """Rows that can be selected by their values; a row may lack columns that others have."""

    def where(self, **values: Any) -> Rows:
        """The rows that have these values in these columns."""
        return Rows(row for row in self if all(row.get(column) == value for column, value in values.items()))

    def column(self, name: str) -> list[Any]:
        """The values of a column that all rows have."""
        return [row[name] for row in self]

    def values(self, column: str, by: str | tuple[str, ...]) -> dict[Any, Any]:
        """The values of a column by those of another one, or by tuples of several others."""
        key = itemgetter(by) if isinstance(by, str) else itemgetter(*by)
        return {key(row): row[column] for row in self}


@dataclass(frozen=True)
class Finding:
    """What was done, what came out, and whether that is what the notes say."""

    method: str  # what was done, so that a reader can do it again
    measured: str  # the result, in a sentence or two with their numbers
    holds: bool  # whether the claim is true of these numbers
    facts: dict[str, float]  # the numbers that the verdict rests on, by name
    rows: Sequence[Row]  # every point of the figure, for data.csv
    draw: Callable[[], Figure]


def silent(name: str, done: int, total: int | None) -> None:
    """Progress that is not shown."""
