"""A view: one way to look at a trace, as a figure, a picture for a terminal, and a table of numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from glassformer.errors import InputError
from glassformer.looking.points import find_all

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = Sequence[Any]  # of a table; the first has the names of columns


@dataclass(frozen=True)
class Choice:
    """What is to be shown of a trace."""

    layer: int | None = None
    head: int | None = None
    kind: str | None = None  # of attention
    against: Any = None  # another text, to compare with
    word: str | None = None  # of the output, to explain
    instead: str | None = None  # the word that it is compared with
    image: Any = None  # that the trace is of
    width: int = 80  # letters that a line of the terminal has
    words: bool = True  # in place of their pieces, on a page, which can show both


@dataclass(frozen=True)
class View:
    """One way to look at a trace."""

    name: str
    meaning: str  # in a few words
    draw: Callable[[Any, Choice], Figure]  # of a trace, or of what `make` gives
    text: Callable[[Any, Choice], str]  # in rich's markup
    rows: Callable[[Any, Choice], Iterator[Row]]
    points: tuple[str, ...] = ("weights",)  # what it needs: patterns of names
    more: tuple[str, ...] = ()  # what it shows in addition, where a model has it
    merges: bool = True  # whether words can take the place of their pieces
    options: frozenset[str] = frozenset({"kind"})  # which choices have an effect
    make: Callable[[Any, Any, Choice], Any] | None = None  # of a run and what it reads, where a trace is not enough

    def fits(self, points: Sequence[str]) -> bool:
        """Whether a model with these points has what the view shows."""
        return all(matching([each], points) for each in self.points)

    def keep(self, points: Sequence[str]) -> list[str]:
        """The points that the view needs, of those that a model has."""
        return matching((*self.points, *self.more), points)


def matching(patterns: Sequence[str], points: Sequence[str]) -> list[str]:
    """The points that patterns name; a pattern that names none is left out."""
    found: list[str] = []
    for pattern in patterns:
        try:
            found += find_all(pattern, points)
        except InputError:
            continue
    return found
