"""A cache of the ids of words, so that encoding a corpus encodes each frequent word only once.

It is used where the tokens of a text are exactly the tokens of its words, each with the space before it.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable
from itertools import chain

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer as Engine

from glassformer.text.kinds import WORD_PATTERN

MOST_WORDS, MOST_LETTERS = 200_000, 32  # how many words, of which length, are kept

EncodeBatch = Callable[[list[str]], list[list[int]]]


class WordCache:
    """The ids of words that were encoded before, four bytes each; empty where `by_words` is False."""

    def __init__(self, by_words: bool) -> None:
        self.by_words = by_words
        self.known: dict[str, bytes] = {}

    def encode(self, texts: list[str], encode_batch: EncodeBatch) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """The ids of many texts in one flat array, and the number of ids of each text."""
        pieces = [_words(text) for text in texts] if self.by_words else [[text] for text in texts]
        different, known = set(chain.from_iterable(pieces)), self.known
        found = {piece: known[piece] for piece in different if piece in known}
        new = list(different - found.keys())
        found.update((text, array("I", ids).tobytes()) for text, ids in zip(new, encode_batch(new), strict=True))
        if self.by_words and len(known) < MOST_WORDS:
            known.update((piece, found[piece]) for piece in new if len(piece) <= MOST_LETTERS)
        packed = [b"".join([found[piece] for piece in each]) for each in pieces]
        lengths = np.fromiter(map(len, packed), np.int64, len(packed)) // 4
        return np.frombuffer(b"".join(packed), np.uint32), lengths


def cuts_at_spaces(engine: Engine) -> bool:
    """Whether the tokens of a text are the tokens of its words, each with the space before it."""
    state = json.loads(engine.to_str())
    cutter = state["pre_tokenizer"] or {}
    ordinary = [token for token in state["added_tokens"] if not token["special"]]
    if ordinary or (state["normalizer"] or {"type": "Lowercase"})["type"] != "Lowercase":
        return False
    if cutter.get("type") == "ByteLevel":
        return bool(cutter["use_regex"]) and not cutter["add_prefix_space"]
    return bool(cutter.get("type") == "Split" and cutter["pattern"] == {"Regex": WORD_PATTERN})


def _words(text: str) -> list[str]:
    """The words of a text, each with the space before it; the whole text if it has any other white space."""
    words = text.split(" ")
    if len(words) < 2 or words != text.split():
        return [text]
    return [words[0], *[f" {word}" for word in words[1:]]]
