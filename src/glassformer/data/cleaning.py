"""Cleaning: how text is normalised, which examples are kept, and to which split each belongs."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from glassformer.recipe import Data

Hashes = NDArray[np.uint64]


def normalise(text: str, data: Data) -> str:
    """A text as the recipe wants it: one Unicode form, single spaces."""
    if data.normalise == "nfc":
        text = unicodedata.normalize("NFC", text)
    elif data.normalise == "nfkc":
        text = unicodedata.normalize("NFKC", text)
    return " ".join(text.split()) if data.strip else text


def why_dropped(texts: Iterable[str], data: Data) -> str | None:
    """The filter that the normalised texts of an example do not pass, or None."""
    lengths = [len(text) if text.strip() else 0 for text in texts]
    if not all(lengths):
        return "empty after normalisation"
    return "too many characters" if max(lengths, default=0) > data.max_characters else None


def content_hash(content: bytes, seed: int = 0) -> int:
    """Eight bytes that stand for a content, the same on every machine; another seed, other bytes."""
    key = seed.to_bytes(16, "little", signed=True)
    return int.from_bytes(blake2b(content, digest_size=8, key=key).digest(), "little")


def folded(text: str) -> bytes:
    """A text whatever its capitals, spaces and Unicode form: two that differ only in these are in one split."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split()).encode()


def split_of(hashed: int, valid: float, test: float) -> str:
    """The split of an example with this hash, when these fractions are split off."""
    fraction = hashed / 2**64
    return "test" if fraction < test else "valid" if fraction < test + valid else "train"


class Seen:
    """The hashes seen so far, eight bytes each: sorted arrays that are merged as they grow."""

    def __init__(self) -> None:
        self._arrays: list[Hashes] = []  # each at least twice as long as the next

    def __len__(self) -> int:
        return sum(map(len, self._arrays))

    def contains(self, hashes: Hashes) -> NDArray[np.bool_]:
        """Which of these were seen."""
        found = np.zeros(len(hashes), dtype=bool)
        for array in self._arrays:
            places = np.minimum(np.searchsorted(array, hashes), len(array) - 1)
            found |= array[places] == hashes
        return found

    def add(self, hashes: Hashes) -> NDArray[np.bool_]:
        """Remember these; give back which of them are new, each for the first time."""
        unique, first = np.unique(hashes, return_index=True)
        fresh = ~self.contains(unique)
        new = np.zeros(len(hashes), dtype=bool)
        new[first[fresh]] = True
        array = unique[fresh]
        if len(array):
            while self._arrays and len(self._arrays[-1]) < 2 * len(array):
                array = np.concatenate((self._arrays.pop(), array))
                array.sort(kind="stable")
            self._arrays.append(array)
        return new
