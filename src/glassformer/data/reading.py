"""Reading: all examples of a source, cleaned, each put where it belongs: train, valid, test, or nowhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassformer.data.cleaning import Seen, content_hash
from glassformer.data.examples import BadRow, texts_in
from glassformer.data.report import Report
from glassformer.data.source import SPLITS, Found, Split
from glassformer.data.store import Block, ExampleWriter
from glassformer.data.textfiles import CONTROL, LONGEST, checked
from glassformer.recipe import Recipe

Progress = Callable[[str, int, int | None], None]  # the stage, how many are done, of how many if that is known


def read_all(recipe: Recipe, base: Path, folder: Path, report: Report, progress: Progress) -> dict[Split, list[Block]]:
    """Write all examples that are kept, split by split. Gives the places of their blocks."""
    own: tuple[Split, ...] = recipe.source.splits(base)
    with ExitStack() as stack:
        writers = {split: stack.enter_context(ExampleWriter(folder, split)) for split in SPLITS}
        sorter = Sorter(recipe, own, writers, report)
        clean = stack.enter_context(Cleaner(recipe))
        for split in sorted(own, key="train".__eq__):  # held-out files first, to see what of them is in train
            for block in _blocks(recipe.source.read(split, base, report), recipe.task.block):
                examples = clean(block, report)
                progress("reading", report.read, None)
                if split == "train":
                    sorter.sort(examples)
                else:
                    sorter.hold_out(split, examples)
    return {split: writer.blocks for split, writer in writers.items()}


def _blocks(found: Iterator[Found], most: int) -> Iterator[list[Found]]:
    """So many rows at a time; fewer if they are long, for a block is held and encoded whole."""
    block, size = list[Found](), 0
    for row in found:
        block.append(row)
        size += sum(map(len, texts_in(row[0])))
        if len(block) == most or size > 2 * LONGEST:
            yield block
            block, size = [], 0
    if block:
        yield block


def read_examples_of(source: Any, recipe: Recipe, base: Path, report: Report) -> Iterator[tuple[Any, str]]:
    """The examples of a source's train for the recipe's task, cleaned, each with its place; bad rows are counted."""
    with Cleaner(recipe) as clean:
        for found in source.read("train", base, report):
            for example in clean([found], report):
                yield example, found[1]


class Cleaner:
    """Makes examples of a task, normalised, of what a source gives. Bad rows are counted."""

    def __init__(self, recipe: Recipe) -> None:
        self.task, self.data = recipe.task, recipe.data
        self._pool = ThreadPoolExecutor(recipe.data.workers or None) if recipe.task.threads else None

    def __enter__(self) -> Cleaner:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def __call__(self, block: list[Found], report: Report) -> list[Any]:
        """The examples of a block of rows."""
        made = map(self._made, block) if self._pool is None else self._pool.map(self._made, block)
        examples = []
        for (_, place), example in zip(block, made, strict=True):
            if isinstance(example, BadRow):
                report.add_bad(example.kind, place, str(example))
            else:
                report.read += 1
                examples.append(example)
        return examples

    def _made(self, found: Found) -> Any:
        try:
            check_texts(found[0])
            return self.task.clean(self.task.example(found[0]), self.data)
        except BadRow as bad:
            return bad


def check_texts(example: tuple[Any, ...]) -> None:
    """Refuse an example with a text that is empty or too long, with a control character, or with half a character."""
    texts = list(texts_in(example))
    empty = [number for number, text in enumerate(texts) if not text.strip()]
    if empty:
        side = "target" if len(texts) > 1 and empty == [len(texts) - 1] else "source"
        raise BadRow("empty side", f"the {side} is empty")
    for text in texts:
        if len(text) > LONGEST:
            raise BadRow("text too long", f"a text has more than {LONGEST:,} characters")
        if not text.isprintable() and (found := CONTROL.search(text)):
            raise BadRow("control characters", f"contains the control character U+{ord(found[0]):04X}")
        if isinstance(bad := checked(text), BadRow):
            raise bad


class Sorter:
    """Puts clean examples where they belong, and counts.

    What a source holds out itself stays whole, for scores on it to mean what they mean elsewhere; the other examples
    pass the filters first, and what the source does not hold out is split off from them, by the task's `parts`.
    """

    def __init__(
        self, recipe: Recipe, own: tuple[Split, ...], writers: dict[Split, ExampleWriter], report: Report
    ) -> None:
        self.task, self.data, self.writers, self.report = recipe.task, recipe.data, writers, report
        self.seen = Seen()
        self.held_out: dict[Split, Seen] = {split: Seen() for split in own if split != "train"}
        self.valid = 0.0 if "valid" in own else self.data.valid
        self.test = 0.0 if "test" in own else self.data.test

    def hold_out(self, split: Split, examples: list[Any]) -> None:
        """Take examples of the source's own valid or test."""
        self.held_out[split].add(self._hashes(examples))
        self.writers[split].write(examples)

    def sort(self, examples: list[Any]) -> None:
        """Take examples of the source's train: filter them and split some off."""
        examples = self._different([example for example in examples if self._passes(example)])
        hashes = self._hashes(examples)
        for split, held_out in self.held_out.items():
            if shared := int(held_out.contains(hashes).sum()):
                self.report.shared[split] += shared
        pairs = zip(examples, hashes.tolist(), strict=True)
        placed = [part for each, hashed in pairs for part in self.task.parts(each, hashed, self.valid, self.test)]
        for split, writer in self.writers.items():
            if split not in self.held_out:
                writer.write(part for place, part in placed if place == split)

    def _hashes(self, examples: list[Any]) -> NDArray[np.uint64]:
        keys = (self.task.split_key(example) for example in examples)
        return np.array([content_hash(key, self.data.seed) for key in keys], np.uint64)

    def _passes(self, example: Any) -> bool:
        reason = self.task.why_dropped(example, self.data)
        if reason is not None:
            self.report.dropped[reason] += 1
        return reason is None

    def _different(self, examples: list[Any]) -> list[Any]:
        if self.data.duplicates == "keep":
            return examples
        new = self.seen.add(np.array([content_hash(self.task.identity(each)) for each in examples], np.uint64))
        if repeated := int((~new).sum()):
            self.report.dropped["duplicates"] += repeated
        return list(compress(examples, new.tolist()))
