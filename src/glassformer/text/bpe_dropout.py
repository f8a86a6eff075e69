"""BPE-dropout (Provilkov et al., 2020): merges are left out at random, so that a word is seen in several segmentations.

A model then learns what the pieces of a word mean, and words that it never saw are not strange to it. The library's own
dropout cannot be seeded; here the segmentation of a text depends only on the text and the seed, on any machine.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from random import Random

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer as Engine

from glassformer.errors import InputError

VARIANTS = 16  # segmentations of a word that are drawn; each time it occurs, one of them is taken
LONGEST = 64  # letters of a word beyond which its merges are not drawn: that would take too long


class BPEDropout:
    """Encodes texts with a byte-level BPE tokenizer, leaving out merges with a probability `rate`."""

    by_words = True

    def __init__(self, engine: Engine, rate: float) -> None:
        model = json.loads(engine.to_str())["model"]
        pieces = [model.get(key) for key in ("continuing_subword_prefix", "end_of_word_suffix")]
        if model["type"] != "BPE" or engine.pre_tokenizer is None or any(pieces):
            raise InputError("tokenizer.dropout needs a byte-level BPE tokenizer: this one has no merges to leave out")
        self._engine, self._rate, self._seed = engine, rate, 0
        self._ids: dict[str, int] = model["vocab"]
        merges = (merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"])
        self._ranks = {(left, right): rank for rank, (left, right) in enumerate(merges)}
        self._variants = lru_cache(200_000)(self._drawn)

    def seeded(self, seed: int) -> BPEDropout:
        """The same, drawing other segmentations; what is known of words is shared."""
        other = copy.copy(self)
        other._seed = seed
        return other

    def encode(
        self, texts: list[str], encode_batch: Callable[[list[str]], list[list[int]]]
    ) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """The ids of many texts in one flat array, and the number of ids of each text."""
        rows = list(map(self._text, texts))
        plain = [number for number, row in enumerate(rows) if row is None]
        for number, ids in zip(plain, encode_batch([texts[number] for number in plain]), strict=True):
            rows[number] = ids
        flat = [token for row in rows for token in row or ()]
        return np.array(flat, np.uint32), np.array([len(row or ()) for row in rows], np.int64)

    def _text(self, text: str) -> list[int] | None:
        """The ids of a text; None if one of its words has no segmentation drawn."""
        rng = Random(f"{self._seed} {text}")
        normaliser, cutter = self._engine.normalizer, self._engine.pre_tokenizer
        words = cutter.pre_tokenize_str(text if normaliser is None else normaliser.normalize_str(text))
        ids = list[int]()
        for word, _ in words:
            variants = self._variants(word)
            if not variants:
                return None
            ids += variants[int(rng.random() * len(variants))]
        return ids

    def _drawn(self, word: str) -> list[list[int]]:
        """Segmentations of a word, each drawn by itself; none if it is too long or has a letter without an id."""
        if len(word) > LONGEST or any(letter not in self._ids for letter in word):
            return []
        rng = Random(word)
        return [self._segmented(word, rng) for _ in range(VARIANTS if len(word) > 1 else 1)]

    def _segmented(self, word: str, rng: Random) -> list[int]:
        """The ids of a word: the earliest learned merge of those not left out is applied, until there is none."""
        pieces = list(word)
        while True:
            kept = [
                (self._ranks[pair], place)
                for place, pair in enumerate(pairwise(pieces))
                if pair in self._ranks and rng.random() >= self._rate
            ]
            if not kept:
                return [self._ids[piece] for piece in pieces]
            _, place = min(kept)
            pieces[place : place + 2] = [pieces[place] + pieces[place + 1]]
