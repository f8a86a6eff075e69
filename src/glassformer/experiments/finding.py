"""Findings: what an experiment returns."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from statistics import fmean
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = dict[str, Any]  # words and numbers, by column
Progress = Callable[[str, int, int | None], None]  # what is being done, how much of it is done, of how much


def without_lone_minus(text: str) -> str:
    """A number as it is read: what was rounded to 0 is not below it."""
    return text.removeprefix("-") if re.fullmatch(r"-0[.0]*\D*", text) else text


class Spread(float):
    """What several seeds give: a number, their mean, that knows the lowest and the highest of them."""

    values: tuple[float, ...]

    def __new__(cls, values: Iterable[float]) -> Self:
        """The mean of some values."""
        values = tuple(map(float, values))  # also of spreads
        made = super().__new__(cls, fmean(values))
        made.values = values
        return made

    def __getnewargs__(self) -> tuple[tuple[float, ...]]:  # type: ignore[override]  # for pickle and copy
        return (self.values,)

    @property
    def low(self) -> float:
        """The lowest."""
        return min(self.values)

    @property
    def high(self) -> float:
        """The highest."""
        return max(self.values)

    def __format__(self, form: str) -> str:
        """The mean, and the range in brackets where that is not the same number: 97% (95% to 99%)."""
        mean, low, high = (without_lone_minus(format(each, form)) for each in (float(self), self.low, self.high))
        return mean if low == high else f"{mean} ({low} to {high})"


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

    def spreads(self, column: str, by: str | tuple[str, ...]) -> dict[Any, Spread]:
        """Mean and range of a column in the rows that have the same values in others; as a rule they differ in seed."""
        key = itemgetter(by) if isinstance(by, str) else itemgetter(*by)
        groups: dict[Any, list[float]] = {}
        for row in self:
            groups.setdefault(key(row), []).append(row[column])
        return {group: Spread(values) for group, values in groups.items()}


@dataclass(frozen=True)
class Finding:
    """What was done, what came out, and whether that is what the notes say."""

    method: str  # what was done, so that a reader can do it again
    measured: str  # the result, in a sentence or two with their numbers
    holds: bool  # whether the claim is true of these numbers: every part of the sentence, at every seed
    facts: dict[str, float]  # the numbers that the verdict rests on, by name; a `Spread` where there are several seeds
    rows: Sequence[Row]  # every point of the figure, for data.csv
    draw: Callable[[], Figure]
    seeds: Sequence[int] = ()  # of the repetitions, where there are several; rows have a column `seed`


def silent(name: str, done: int, total: int | None) -> None:
    """Progress that is not shown."""
