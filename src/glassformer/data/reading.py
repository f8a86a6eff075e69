"""Reading: all pairs of a source, cleaned, each put where it belongs: train, valid, test, or nowhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import compress, islice
from pathlib import Path

import numpy as np

from glassformer.data.cleaning import Seen, content_hash, normalise, source_hash, split_of, why_dropped
from glassformer.data.files import BETWEEN
from glassformer.data.report import Pair, Report
from glassformer.data.sources import SPLITS, Split, own_splits, read_pairs
from glassformer.data.store import Place, TextWriter
from glassformer.data.words import as_many
from glassformer.recipe import Data, Recipe
from glassformer.usual import DOCUMENTS

Progress = Callable[[str, int, int | None], None]
Texts = list[tuple[str, str]]
BLOCK = 10_000  # pairs that are handled together


def read_all(recipe: Recipe, base: Path, folder: Path, report: Report, progress: Progress) -> dict[Split, list[Place]]:
    """Write the texts of all pairs that are kept, split by split. Gives the places of their blocks."""
    data, own, alone = recipe.data, own_splits(recipe.source, base), recipe.task.kind in DOCUMENTS
    with ExitStack() as stack:
        writers = {split: stack.enter_context(TextWriter(folder, split)) for split in SPLITS}
        sorter = Sorter(data, own, writers, report, _context if recipe.task.kind == "answering" else str, alone)
        for split in sorted(own, key="train".__eq__):  # held-out files first, to see what of them is in train
            pairs = read_pairs(recipe.source, split, base, report, data.strict)
            for block in _blocks(as_many(pairs, report, data.strict) if recipe.task.kind == "tagging" else pairs):
                progress("reading", report.read, None)
                texts = [(normalise(pair.source, data), normalise(pair.target, data)) for pair in block]
                if alone:
                    texts = [(source, "") for source, _ in texts]
                if split == "train":
                    sorter.sort(texts)
                else:
                    sorter.hold_out(split, texts)
    return {split: writer.blocks for split, writer in writers.items()}


def _context(source: str) -> str:
    """What must not be in two splits: other questions about a context are no others."""
    return source.partition(BETWEEN)[2]


def _blocks(pairs: Iterator[Pair]) -> Iterator[list[Pair]]:
    while block := list(islice(pairs, BLOCK)):
        yield block


class Sorter:
    """Puts normalised pairs where they belong, and counts.

    What a source holds out itself stays whole, for scores on it to mean what they mean elsewhere; the other pairs
    pass the filters first, and what the source does not hold out is split off from them, by what `key` gives of them.
    Texts that stand `alone` have no target.
    """

    def __init__(
        self,
        data: Data,
        own: tuple[Split, ...],
        writers: dict[Split, TextWriter],
        report: Report,
        key: Callable[[str], str] = str,
        alone: bool = False,
    ) -> None:
        self.data, self.writers, self.report, self.key, self.alone = data, writers, report, key, alone
        self.seen = Seen()
        self.held_out: dict[Split, Seen] = {split: Seen() for split in own if split != "train"}
        self.valid = 0.0 if "valid" in own else data.valid
        self.test = 0.0 if "test" in own else data.test

    def hold_out(self, split: Split, texts: Texts) -> None:
        """Take pairs of the source's own valid or test."""
        self.held_out[split].add(self._source_hashes(texts))
        self.writers[split].write(texts)

    def sort(self, texts: Texts) -> None:
        """Take pairs of the source's train: filter them and split some off."""
        texts = self._different([pair for pair in texts if self._passes(pair)])
        hashes = self._source_hashes(texts)
        for split, held_out in self.held_out.items():
            if shared := int(held_out.contains(hashes).sum()):
                self.report.shared[split] += shared
        sides = [split_of(each, self.valid, self.test) for each in hashes.tolist()]
        for split, writer in self.writers.items():
            if split not in self.held_out:
                writer.write(compress(texts, [side == split for side in sides]))

    def _source_hashes(self, texts: Texts) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
        return np.array([source_hash(self.key(source), self.data.seed) for source, _ in texts], np.uint64)

    def _passes(self, pair: tuple[str, str]) -> bool:
        source, target = pair
        reason = why_dropped(source, source if self.alone else target, self.data)
        if reason is not None:
            self.report.dropped[reason] += 1
        return reason is None

    def _different(self, texts: Texts) -> Texts:
        if self.data.duplicates == "keep":
            return texts
        new = self.seen.add(np.array([content_hash(f"{source}\0{target}") for source, target in texts], np.uint64))
        if repeated := int((~new).sum()):
            self.report.dropped["duplicates"] += repeated
        return list(compress(texts, new.tolist()))
