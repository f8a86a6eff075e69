"""Lines that commands read: one that cannot be used gets a sentence, and the others get their answers."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from glassformer.cli.showing import Garbled, bar, each_line, portions
from glassformer.errors import InputError
from glassformer.run.held_out import Progress

Item = TypeVar("Item")
Made = TypeVar("Made")
Work = Callable[[list[Made], Progress | None], Sequence[Any]]


def given(texts: list[str] | None, file: str) -> Iterator[str]:
    """The texts of a command: its words, or else the lines of its file."""
    if texts and file != "-":
        raise InputError("give texts or a --file, not both")
    return iter(texts) if texts else each_line(file)


def readable(line: str) -> str | None:
    """A line as it was given; None of one that is no text."""
    return None if isinstance(line, Garbled) else line


class Lines(Generic[Item, Made]):
    """What is asked of a command, portion by portion; `check` makes of each what is worked with, or complains."""

    def __init__(self, doing: str, things: str, check: Callable[[Item], Made]) -> None:
        self._doing, self._things, self._check = doing, things, check
        self._asked = self._failed = 0

    def answered(self, items: Iterator[Item], work: Work[Made]) -> Iterator[tuple[Item, Any, str]]:
        """Each item with its answer and no complaint, or with none and what is wrong with it; in their order."""
        for portion in portions(items):
            good, wrong = self._sorted(portion)
            if wrong and self._asked == len(portion) == 1:  # it was all there is
                raise InputError(wrong[0])
            with bar(self._doing, len(good)) as progress:
                answers = dict(zip(good, work(list(good.values()), progress) if good else [], strict=True))
            for row, item in enumerate(portion):
                if row in wrong:
                    sys.stderr.write(f"glassformer: {wrong[row]}\n")
                yield item, answers.get(row), wrong.get(row, "")
            sys.stdout.flush()

    def write(self, items: Iterator[Item], work: Work[Made], plain: Callable[[Any], str], as_json: bool) -> None:
        """Write a line for each item: its answer, for people or for programs, or that there is none; then `end`."""
        for _, answer, wrong in self.answered(items, work):
            if as_json:
                sys.stdout.write(json.dumps({"error": wrong} if wrong else answer, ensure_ascii=False) + "\n")
            else:
                sys.stdout.write(f"{'' if wrong else plain(answer)}\n")
        self.end()

    def checked(self, items: Iterator[Item]) -> Iterator[Made | None]:
        """What is worked with, each as soon as it is read; None for an item that is complained of."""
        for item in items:
            good, wrong = self._sorted([item])
            for complaint in wrong.values():
                sys.stderr.write(f"glassformer: {complaint}\n")
            yield good.get(0)

    def end(self) -> None:
        """Complain if anything was left unanswered."""
        if self._failed:
            raise InputError(f"{self._failed:,} of the {self._things} could not be read")

    def _sorted(self, portion: list[Item]) -> tuple[dict[int, Made], dict[int, str]]:
        """What can be worked with, by its row, and what is wrong with the others."""
        good: dict[int, Made] = {}
        wrong: dict[int, str] = {}
        for row, item in enumerate(portion):
            try:
                if isinstance(item, Garbled):
                    raise InputError(item)
                good[row] = self._check(item)
            except InputError as error:
                wrong[row] = str(error)
        self._asked, self._failed = self._asked + len(portion), self._failed + len(wrong)
        return good, wrong
