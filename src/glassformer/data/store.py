"""The store: examples and rows of many of them in flat files, so that a corpus may be larger than memory.

Examples are lines of JSON. A row is what an example becomes for a model: numbers to read, numbers to predict. A file
holds the numbers of all rows one after another, both sides of a row together; a second one holds their lengths, (N, 2).

N rows
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassformer.data.examples import Example, from_line, to_line

Lengths = NDArray[np.int32]
Block = tuple[int, int]  # where a block of examples begins: how many examples and bytes come before
CHUNK = 1_000_000  # rows that are handled at once where all would be too many


def mapped(path: Path, dtype: Any) -> NDArray[Any]:
    """A flat file as an array, read only; an empty file as an empty array."""
    return np.memmap(path, dtype=dtype, mode="r") if path.stat().st_size else np.zeros(0, dtype=dtype)


class ExampleWriter:
    """Writes the examples of a split to NAME.jsonl, and remembers where its blocks begin."""

    def __init__(self, folder: Path, name: str) -> None:
        self.examples = self.bytes = 0
        self.blocks: list[Block] = [(0, 0)]  # where each block begins, and where the last ends
        self._file = (folder / f"{name}.jsonl").open("wb")

    def __enter__(self) -> ExampleWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def write(self, examples: Iterable[tuple[Any, ...]]) -> None:
        """Write a block of examples."""
        lines = [to_line(example).encode() for example in examples]
        if lines:
            self._file.writelines(lines)
            self.examples, self.bytes = self.examples + len(lines), self.bytes + sum(map(len, lines))
            self.blocks.append((self.examples, self.bytes))


def read_block(folder: Path, name: str, first: Block, last: Block, kind: type[Example]) -> list[Example]:
    """The examples between two places."""
    with (folder / f"{name}.jsonl").open("rb") as file:
        file.seek(first[1])
        data = file.read(last[1] - first[1])
    return [from_line(kind, line) for line in data.split(b"\n") if line]


def write_starts(folder: Path, name: str) -> None:
    """Write `NAME.starts`, where each row starts, from `NAME.lengths`."""
    lengths = mapped(folder / f"{name}.lengths", np.int32).reshape(-1, 2)
    with (folder / f"{name}.starts").open("wb") as file:
        total = 0
        for first in range(0, len(lengths), CHUNK):
            ends = total + np.cumsum(lengths[first : first + CHUNK].sum(axis=1, dtype=np.int64))
            file.write(np.concatenate(([total], ends[:-1])).astype(np.int64).tobytes())
            total = int(ends[-1])


class Rows:
    """Rows of numbers in memory, or in memory-mapped files. `lengths` (N, 2) counts the numbers of each side.

    `flat` holds all numbers, `starts` (N) where each row's source stands in it; its target follows.
    """

    def __init__(self, flat: NDArray[Any], lengths: Lengths, starts: NDArray[np.int64] | None = None) -> None:
        both = lengths.sum(axis=1, dtype=np.int64) if starts is None else None
        self.flat, self.lengths = flat, lengths
        self.starts: NDArray[np.int64] = np.cumsum(both) - both if both is not None else starts  # type: ignore[assignment]

    @classmethod
    def opened(cls, folder: Path, name: str, dtype: str) -> Rows:
        """The rows of a split in a prepared corpus."""
        lengths = mapped(folder / f"{name}.lengths", np.int32).reshape(-1, 2)
        return cls(mapped(folder / f"{name}.tokens", dtype), lengths, mapped(folder / f"{name}.starts", np.int64))

    def __len__(self) -> int:
        return len(self.starts)

    def source(self, row: int) -> NDArray[Any]:
        """The numbers that are read in a row."""
        start = int(self.starts[row])
        return self.flat[start : start + int(self.lengths[row, 0])]

    def target(self, row: int) -> NDArray[Any]:
        """The numbers that are predicted in a row."""
        start = int(self.starts[row]) + int(self.lengths[row, 0])
        return self.flat[start : start + int(self.lengths[row, 1])]

    def blocks(self, side: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """All numbers of the sources (0) or the targets (1), and the row of each; some rows at a time."""
        for first in range(0, len(self), CHUNK):
            lengths = np.asarray(self.lengths[first : first + CHUNK])
            start, size = int(self.starts[first]), int(lengths.sum(dtype=np.int64))
            wanted = np.repeat(np.tile([side == 0, side == 1], len(lengths)), lengths.reshape(-1))
            tokens = np.asarray(self.flat[start : start + size])[wanted].astype(np.int64)
            yield first + np.repeat(np.arange(len(lengths)), lengths[:, side]), tokens
