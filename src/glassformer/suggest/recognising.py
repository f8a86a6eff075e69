"""Recognising: what a user's files are, and what they are meant for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from glassformer.data.examples import texts_in
from glassformer.data.report import Report
from glassformer.errors import DataError, InputError
from glassformer.registry import SOURCES, TASKS

LOOKED_AT = 2_000  # rows
COMMON = {  # words by which a language is known
    "Dutch": "de het een van en ik niet is dat je",
    "English": "the a of and to is you i that in",
    "Finnish": "on ja ei hän se minä että oli ole mutta",
    "French": "le la les de est je et il que pas",
    "German": "der die das und ist nicht ich ein zu es",
    "Italian": "il di che è la e non un per sono",
    "Polish": "się nie w na jest z to do że i",
    "Portuguese": "o a que de não um é eu para uma",
    "Russian": "и в не на я что он с это как",
    "Spanish": "el la de que no es un en los por",
    "Swedish": "och att det är en som jag inte på har",
    "Turkish": "bir ve bu ne için çok ben de değil mi",
}
KNOWN_BY = 0.08  # of the words, at least


@dataclass(frozen=True)
class Recognised:
    """What files are: a section [source], the task that they are meant for, and some of their rows."""

    source: dict[str, Any]
    task: str
    rows: list[Any]

    def count(self) -> int:
        """How many rows there are for training; they are all read."""
        return sum(1 for _ in _read(self.source))

    @property
    def languages(self) -> list[str | None]:
        """The language of each text of a row, as far as it can be told."""
        texts = [[*texts_in(row)] for row in self.rows]
        return [language([row[side] for row in texts]) for side in range(min(map(len, texts), default=0))]


def recognise(paths: Sequence[Path], task: str | None = None) -> Recognised:
    """What one or two files, or a folder, are; the task is guessed if it is not given."""
    for path in paths:
        if not path.exists():
            raise InputError(f"{path}: there is no such file or folder")
    if task is not None and task not in TASKS:
        raise InputError(f"there is no task {task!r}: expected one of {', '.join(TASKS.names())}")
    found = {kind: keys for kind, each in SOURCES.items() if (keys := each.recognised(paths)) is not None}
    fitting = [kind for kind in found if task is None or issubclass(SOURCES[kind].gives, TASKS[task].reads)]
    if not fitting:
        names = " and ".join(map(str, paths))
        needed = f" that {task} can learn from" if task and found else ""
        raise InputError(
            f"{names}: nothing{needed} was recognised: expected two aligned files, a table with tabs (.tsv), objects "
            "(.jsonl), .po, .tmx, SQuAD's .json, a text, or a folder of texts, of images, or of train.tsv and the like"
        )
    kind = fitting[0]
    source = {"kind": kind, **found[kind]}
    rows = _rows(source)
    if not rows:
        raise DataError(f"{paths[0]}: holds no row that can be read")
    return Recognised(source, task or _task(SOURCES[kind].gives, rows), rows)


def language(texts: Sequence[str]) -> str | None:
    """The language of some texts, by its most frequent words; None: it is none that is known by these."""
    words = Counter(" ".join(texts).lower().split())
    found = {name: [words[word] for word in common.split() if word in words] for name, common in COMMON.items()}
    best = max(found, key=lambda name: sum(found[name]))
    return best if len(found[best]) > 1 and sum(found[best]) > KNOWN_BY * words.total() else None


def _rows(source: dict[str, Any]) -> list[Any]:
    """The first rows."""
    return [found for found, _ in islice(_read(source), LOOKED_AT)]


def _read(source: dict[str, Any]) -> Iterator[Any]:
    made = SOURCES[source["kind"]].model_validate(source)
    yield from made.read("train", Path.cwd(), Report())


def _task(kind: type, rows: list[Any]) -> str:
    """The task that rows of a type are most likely meant for."""
    fitting = {name: task for name, task in TASKS.items() if issubclass(kind, task.reads)}
    return max(fitting, key=lambda name: fitting[name].likelihood(rows))
