"""What the tests of data share: recipes in a line, and stores of tokens made by hand."""

from pathlib import Path
from typing import Any

import numpy as np

from glassformer.data import Prepared, Report, TokenPairs, prepare, read_pairs
from glassformer.data.sources import Split
from glassformer.data.store import write_starts
from glassformer.recipe import Recipe
from glassformer.recipe import Tokenizer as Section
from glassformer.recipes import make_recipe
from glassformer.text import Tokenizer

BYTES = Tokenizer.train([], Section(kind="byte"))


def recipe(source: dict[str, Any], kind: str = "byte", tokenizer: dict[str, Any] | None = None, **data: Any) -> Recipe:
    return make_recipe({"source": source, "tokenizer": {"kind": kind, **(tokenizer or {})}, "data": data})


def pairs_of(
    source: dict[str, Any], base: Path, split: Split = "train", strict: bool = False
) -> tuple[list[tuple[str, str]], Report]:
    report = Report()
    found = list(read_pairs(recipe(source).source, split, base, report, strict))
    assert all(pair.place for pair in found)
    return [(pair.source, pair.target) for pair in found], report


def prepared(source: dict[str, Any], base: Path, **more: Any) -> Prepared:
    return prepare(recipe(source, **more), base, base / "cache")


def texts(made: Prepared, split: str) -> list[tuple[str, str]]:
    store = made.splits[split]
    return [
        (made.source_tokenizer.decode(store.source(i)), made.target_tokenizer.decode(store.target(i)))
        for i in range(len(store))
    ]


def store(folder: Path, pairs: list[tuple[list[int], list[int]]], name: str = "train") -> TokenPairs:
    flat = [i for pair in pairs for side in pair for i in side]
    np.array(flat, np.uint16).tofile(folder / f"{name}.tokens")
    np.array([[len(a), len(b)] for a, b in pairs], np.int32).tofile(folder / f"{name}.lengths")
    write_starts(folder, name)
    return TokenPairs(folder, name, "uint16")
