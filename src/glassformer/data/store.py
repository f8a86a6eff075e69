"""The store: texts and tokens of many pairs in flat files, mapped into memory, so that a corpus may be larger than it.

A file holds all pairs one after another, source then target; a second one holds their lengths, (N, 2).

N pairs
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

Lengths = NDArray[np.int32]
Place = tuple[int, int]  # in a file of texts: how many pairs and bytes come before
BLOCK = 1_000_000  # pairs that are handled at once where all would be too many


def mapped(path: Path, dtype: Any) -> NDArray[Any]:
    """A flat file as an array, read only; an empty file as an empty array."""
    return np.memmap(path, dtype=dtype, mode="r") if path.stat().st_size else np.zeros(0, dtype=dtype)


class TextWriter:
    """Writes the texts of pairs: `NAME.text` and `NAME.sizes`, the sizes in bytes."""

    def __init__(self, folder: Path, name: str) -> None:
        self.pairs = self.bytes = 0
        self.blocks: list[Place] = [(0, 0)]  # where each block begins, and where the last ends
        self._files: tuple[IO[bytes], IO[bytes]] = (
            (folder / f"{name}.text").open("wb"),
            (folder / f"{name}.sizes").open("wb"),
        )

    def __enter__(self) -> TextWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._files:
            file.close()

    def write(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Write a block of pairs."""
        texts = [side.encode() for pair in pairs for side in pair]
        if not texts:
            return
        sizes = np.fromiter(map(len, texts), np.int32, len(texts))
        self._files[0].write(b"".join(texts))
        self._files[1].write(sizes.tobytes())
        self.pairs, self.bytes = self.pairs + len(texts) // 2, self.bytes + int(sizes.sum(dtype=np.int64))
        self.blocks.append((self.pairs, self.bytes))


def read_texts(folder: Path, name: str, first: Place, last: Place) -> tuple[list[str], list[str]]:
    """The sources and targets between two places."""
    with (folder / f"{name}.text").open("rb") as file:
        file.seek(first[1])
        text = file.read(last[1] - first[1])
    with (folder / f"{name}.sizes").open("rb") as file:
        file.seek(first[0] * 8)
        sizes = np.frombuffer(file.read((last[0] - first[0]) * 8), np.int32)
    ends = np.cumsum(sizes, dtype=np.int64).tolist()
    texts = [text[start:end].decode() for start, end in zip([0, *ends], ends, strict=False)]
    return texts[0::2], texts[1::2]


def write_starts(folder: Path, name: str) -> None:
    """Write `NAME.starts`, where each pair starts, from `NAME.lengths`."""
    lengths = mapped(folder / f"{name}.lengths", np.int32).reshape(-1, 2)
    with (folder / f"{name}.starts").open("wb") as file:
        total = 0
        for first in range(0, len(lengths), BLOCK):
            ends = total + np.cumsum(lengths[first : first + BLOCK].sum(axis=1, dtype=np.int64))
            file.write(np.concatenate(([total], ends[:-1])).astype(np.int64).tobytes())
            total = int(ends[-1])


class TokenPairs:
    """Pairs of token ids in memory-mapped files. `lengths` (N, 2) counts the tokens of each side, no special ones.

    `flat` holds all ids, `starts` (N) where each pair's source stands in it; its target follows.
    """

    def __init__(self, folder: Path, name: str, dtype: str) -> None:
        self.flat = mapped(folder / f"{name}.tokens", dtype)
        self.lengths: Lengths = mapped(folder / f"{name}.lengths", np.int32).reshape(-1, 2)
        self.starts: NDArray[np.int64] = mapped(folder / f"{name}.starts", np.int64)
        self._folder, self._name = folder, name
        self._text_ends: NDArray[np.int64] | None = None
        if (folder / f"{name}.sizes").exists():
            self._text_ends = np.cumsum(mapped(folder / f"{name}.sizes", np.int32), dtype=np.int64).reshape(-1, 2)

    def __len__(self) -> int:
        return len(self.starts)

    def source(self, row: int) -> NDArray[Any]:
        """The source's ids of a pair."""
        start = int(self.starts[row])
        return self.flat[start : start + int(self.lengths[row, 0])]

    def target(self, row: int) -> NDArray[Any]:
        """The target's ids of a pair."""
        start = int(self.starts[row]) + int(self.lengths[row, 0])
        return self.flat[start : start + int(self.lengths[row, 1])]

    def blocks(self, side: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """All tokens of the sources (0) or the targets (1), and the row of each; some rows at a time."""
        for first in range(0, len(self), BLOCK):
            lengths = np.asarray(self.lengths[first : first + BLOCK])
            start, size = int(self.starts[first]), int(lengths.sum(dtype=np.int64))
            wanted = np.repeat(np.tile([side == 0, side == 1], len(lengths)), lengths.reshape(-1))
            tokens = np.asarray(self.flat[start : start + size])[wanted].astype(np.int64)
            yield first + np.repeat(np.arange(len(lengths)), lengths[:, side]), tokens

    def texts(self, row: int) -> tuple[str, str]:
        """The text of a pair as it was before tokenisation, normalised; valid and test have it, train has not."""
        if self._text_ends is None:
            raise LookupError(f"the texts of {self._name} were not kept: decode its tokens instead")
        count = len(self._text_ends)
        if not -count <= row < count:
            raise IndexError(f"there is no pair {row} among {count}")
        row %= count
        middle, end = (int(place) for place in self._text_ends[row])
        start = int(self._text_ends[row - 1, 1]) if row else 0
        with (self._folder / f"{self._name}.text").open("rb") as file:
            file.seek(start)
            text = file.read(end - start)
        return text[: middle - start].decode(), text[middle - start :].decode()

    def all_texts(self) -> list[tuple[str, str]]:
        """The texts of all examples; there may be more or fewer of them than rows of tokens."""
        return [self.texts(row) for row in range(0 if self._text_ends is None else len(self._text_ends))]
