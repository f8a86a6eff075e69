"""Word vectors: nearest words, analogies, and the text format of word2vec.

    V D                     the number of words, and of numbers per vector
    word x₁ x₂ … x_D        one word per line

V words, D width
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from glassformer.errors import ConfigurationError, DataError, TrainingError
from glassformer.files import regular
from glassformer.static.words import Vocabulary
from glassformer.writing import replacing

Table = NDArray[np.float32]


@dataclass(frozen=True)
class Neighbour:
    """A word, and the cosine similarity of its vector with the query."""

    word: str
    similarity: float


@dataclass(frozen=True)
class Vectors:
    """A vector for each word: `vectors.near("king")`, `vectors.analogy("king", "man", "woman")`."""

    vocabulary: Vocabulary
    table: Table  # (V, D)

    @property
    def width(self) -> int:
        """The number of numbers in a vector."""
        return int(self.table.shape[1])

    def __len__(self) -> int:
        return len(self.vocabulary)

    def __contains__(self, word: object) -> bool:
        return word in self.vocabulary.numbers

    def __getitem__(self, word: str) -> Table:
        """The vector of a word, (D)."""
        row: Table = self.table[self.vocabulary.number(word)]
        return row

    def near(self, word: str, count: int = 10) -> list[Neighbour]:
        """The words nearest to a word, nearest first."""
        return self._nearest(self._units[self.vocabulary.number(word)], [word], count)

    def analogy(self, start: str, minus: str, plus: str, count: int = 10) -> list[Neighbour]:
        """The words nearest to start - minus + plus, without these three: king - man + woman is near queen."""
        one, other, third = (self._units[self.vocabulary.number(word)] for word in (start, minus, plus))
        return self._nearest(one - other + third, [start, minus, plus], count)

    @cached_property
    def _units(self) -> Table:
        """All vectors scaled to norm 1, (V, D)."""
        lengths = np.maximum(np.linalg.norm(self.table, axis=1, keepdims=True), 1e-12)
        return np.asarray(self.table / lengths, np.float32)

    def _nearest(self, vector: Table, known: list[str], count: int) -> list[Neighbour]:
        if count < 1:
            raise ConfigurationError(f"the number of neighbours must be at least 1, not {count}")
        similar = self._units @ (vector / max(float(np.linalg.norm(vector)), 1e-12))  # (V)
        similar[[self.vocabulary.number(word) for word in known]] = -math.inf
        best = np.argsort(-similar, kind="stable")[: min(count, len(self) - len(set(known)))]
        return [Neighbour(self.vocabulary.words[number], float(similar[number])) for number in best.tolist()]


def make_vectors(words: Sequence[str], table: NDArray[np.floating]) -> Vectors:
    """Vectors from words and a table with one row for each."""
    return Vectors(Vocabulary(list(words)), np.ascontiguousarray(table, np.float32))


def write_vectors(vectors: Vectors, path: Path) -> None:
    """Write the text format of word2vec atomically; reading it gives bit-identical numbers."""
    wrong = next((word for word in vectors.vocabulary.words if not word or " " in word or "\n" in word), None)
    if wrong is not None:
        raise ConfigurationError(
            f"the word {wrong!r} cannot be written: in this format, words must not be empty or contain spaces"
        )
    try:
        with replacing(path) as new, new.open("w", encoding="utf-8", newline="\n") as file:
            file.write(f"{len(vectors)} {vectors.width}\n")
            for word, row in zip(vectors.vocabulary.words, vectors.table, strict=True):
                file.write(f"{word} {' '.join(map(str, row))}\n")
    except OSError as error:
        raise TrainingError(f"{path} cannot be written: {error.strerror or error}") from None


def read_vectors(path: Path) -> Vectors:
    """Read the text format of word2vec. If a word occurs twice, its first vector is used, as in gensim."""
    try:
        with regular(path).open("rb") as file:
            count, width = _header(file.readline(), path)
            found: dict[str, int] = {}
            numbers = bytearray()  # grows with the file: the header may be wrong
            line = 1
            for line, data in enumerate(file, start=2):
                if line > count + 1:
                    raise DataError(f"{path}:{line}: too many vectors: the first line says {count:,}")
                word, values = _row(data, width, f"{path}:{line}")
                if word not in found:
                    numbers += values.tobytes()
                    found[word] = line
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    if line < count + 1:
        raise DataError(f"{path}:{line}: the file ends after {line - 1:,} vectors: the first line says {count:,}")
    return make_vectors(list(found), np.frombuffer(numbers, np.float32).reshape(-1, width))


def _header(data: bytes, path: Path) -> tuple[int, int]:
    parts = data.split()
    if len(parts) != 2 or not all(part.isdigit() and int(part) for part in parts):
        shown = data[:40].decode("utf-8", "replace").strip()
        raise DataError(f"{path}:1: {shown!r} is not a header: expected the number of words and the width of a vector")
    return int(parts[0]), int(parts[1])


def _row(data: bytes, width: int, place: str) -> tuple[str, Table]:
    try:
        word, *numbers = data.rstrip().decode("utf-8").split(" ")
    except UnicodeDecodeError as error:
        raise DataError(f"{place}: is not UTF-8 text (byte {error.start})") from None
    if not word or len(numbers) != width:
        raise DataError(f"{place}: {len(numbers)} numbers after {word!r}: expected {width}")
    try:
        values = np.array(numbers, np.float32)
    except ValueError as error:
        raise DataError(f"{place}: {error}") from None
    if not np.isfinite(values).all():
        raise DataError(f"{place}: the vector of {word!r} has a value that is not finite")
    return word, values
