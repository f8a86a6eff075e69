"""What the tests of data share: sources and recipes in a line, and stores of tokens made by hand."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.data import Corpus, Report, Rows, Source, prepare
from glassformer.data.examples import BadRow
from glassformer.data.reading import check_texts
from glassformer.data.source import Found, Split
from glassformer.data.store import write_starts
from glassformer.errors import DataError
from glassformer.recipe import Recipe, make_recipe
from glassformer.recipe import Tokenizer as Section
from glassformer.registry import SOURCES
from glassformer.text import Tokenizer

BYTES = Tokenizer.train([], Section(kind="byte"))


def make_source(table: dict[str, Any]) -> Source:
    made: Source = SOURCES[table["kind"]].model_validate(table)
    return made


def recipe(source: dict[str, Any], kind: str = "byte", tokenizer: dict[str, Any] | None = None, **data: Any) -> Recipe:
    return make_recipe({"source": source, "tokenizer": {"kind": kind, **(tokenizer or {})}, "data": data})


def read(source: Source, base: Path, split: Split = "train", report: Report | None = None) -> Iterator[Found]:
    """The good examples of a split with their places, checked and counted; DataError if it has no such split."""
    report = report or Report()
    if split not in source.splits(base):
        raise DataError(f"the source has no {split} of its own: {split} pairs are split off from train")
    for example, place in source.read(split, base, report):
        assert isinstance(example, source.gives)
        assert place
        try:
            check_texts(example)
        except BadRow as bad:
            report.add_bad(bad.kind, place, str(bad))
        else:
            report.read += 1
            yield example, place


def pairs_of(
    source: dict[str, Any], base: Path, split: Split = "train", strict: bool = False
) -> tuple[list[tuple[str, ...]], Report]:
    report = Report(strict=strict)
    found = list(read(make_source(source), base, split, report))
    return [example[0] for example, _ in found], report


def prepared(source: dict[str, Any], base: Path, **more: Any) -> Corpus:
    return prepare(recipe(source, **more), base, base / "cache")


def texts(made: Corpus, split: str) -> list[tuple[str, str]]:
    store, (source, target) = made.splits[split], made.assets.tokenizers
    return [(source.decode(store.source(i)), target.decode(store.target(i))) for i in range(len(store))]


def store(folder: Path, pairs: list[tuple[list[int], list[int]]], name: str = "train") -> Rows:
    flat = [i for pair in pairs for side in pair for i in side]
    np.array(flat, np.uint16).tofile(folder / f"{name}.tokens")
    np.array([[len(a), len(b)] for a, b in pairs], np.int32).tofile(folder / f"{name}.lengths")
    write_starts(folder, name)
    return Rows.opened(folder, name, "uint16")
