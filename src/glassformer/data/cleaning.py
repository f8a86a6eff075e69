"""Cleaning: how text is normalised, which pairs are kept, and on which side of a split each belongs."""

from __future__ import annotations

import unicodedata
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


def why_dropped(source: str, target: str, data: Data) -> str | None:
    """The filter that a normalised pair does not pass, or None."""
    if not source.strip() or not target.strip():
        return "empty after normalisation"
    shorter, longer = sorted((len(source), len(target)))
    if longer > data.max_characters:
        return "too many characters"
    if data.max_ratio is not None and longer > data.max_ratio * shorter:
        return "lengths too different"
    return None


def content_hash(text: str, seed: int = 0) -> int:
    """Eight bytes that stand for a text, the same on every machine; another seed, other bytes."""
    return bytes_hash(text.encode(), seed)


def bytes_hash(data: bytes, seed: int = 0) -> int:
    """The same for any bytes."""
    key = seed.to_bytes(16, "little", signed=True)
    return int.from_bytes(blake2b(data, digest_size=8, key=key).digest(), "little")


def source_hash(source: str, seed: int) -> int:
    """The hash that decides on a pair's split: of its source, whatever its capitals, spaces and Unicode form."""
    return content_hash(" ".join(unicodedata.normalize("NFKC", source).casefold().split()), seed)


def split_of(hashed: int, valid: float, test: float) -> str:
    """The split of a source with this hash, when these shares are split off."""
    place = hashed / 2**64
    return "test" if place < test else "valid" if place < test + valid else "train"


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
