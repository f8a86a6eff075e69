"""A cache of the ids of words, so that encoding a corpus encodes each frequent word only once.

It is used where the tokens of a text are exactly the tokens of its words, each with the space before it.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer as Engine

from glassformer.text.kinds import CUT_AT_SPACES

LOWERCASE, FIRST_SPACE = {"type": "Lowercase"}, {"type": "Prepend", "prepend": " "}
MOST_WORDS, MOST_LETTERS = 200_000, 32  # how many words, of which length, are kept

EncodeBatch = Callable[[list[str]], list[list[int]]]


class WordCache:
    """The ids of words that were encoded before, four bytes each; empty where `by_words` is False.

    Where the engine `adds_space` before the first word of a text, a word is encoded as a text of its own.
    """

    def __init__(self, by_words: bool, adds_space: bool = False) -> None:
        self.by_words, self._space = by_words, "" if adds_space else " "
        self.known: dict[str, bytes] = {}

    def encode(self, texts: list[str], encode_batch: EncodeBatch) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """The ids of many texts in one flat array, and the number of ids of each text."""
        pieces = [self._words(text) for text in texts] if self.by_words else [[text] for text in texts]
        different, known = set(chain.from_iterable(pieces)), self.known
        found = {piece: known[piece] for piece in different if piece in known}
        new = list(different - found.keys())
        found.update((text, array("I", ids).tobytes()) for text, ids in zip(new, encode_batch(new), strict=True))
        if self.by_words and len(known) < MOST_WORDS:
            known.update((piece, found[piece]) for piece in new if len(piece) <= MOST_LETTERS)
        packed = [b"".join([found[piece] for piece in each]) for each in pieces]
        lengths = np.fromiter(map(len, packed), np.int64, len(packed)) // 4
        return np.frombuffer(b"".join(packed), np.uint32), lengths

    def _words(self, text: str) -> list[str]:
        """The words of a text, each with the space before it; the whole text if it has any other white space."""
        words = text.split(" ")
        if len(words) < 2 or words != text.split():
            return [text]
        return [words[0], *[f"{self._space}{word}" for word in words[1:]]]


def cuts_at_spaces(engine: Engine) -> bool:
    """Whether the tokens of a text are the tokens of its words, each with the space before it."""
    state = json.loads(engine.to_str())
    cutter = state["pre_tokenizer"] or {}
    ordinary = [token for token in state["added_tokens"] if not token["special"]]
    if ordinary or any(step not in (LOWERCASE, FIRST_SPACE) for step in _steps(state)):
        return False
    if cutter.get("type") == "ByteLevel":
        return bool(cutter["use_regex"]) and not cutter["add_prefix_space"]
    return cutter.get("type") == "Split" and cutter["pattern"].get("Regex") in CUT_AT_SPACES


def adds_space(engine: Engine) -> bool:
    """Whether a text gets a space before its first word, as the other words have one."""
    return FIRST_SPACE in _steps(json.loads(engine.to_str()))


def within_text(engine: Engine) -> Engine:
    """A copy that takes a text for the rest of another, whose first word gets no space."""
    state = json.loads(engine.to_str())
    kept = [step for step in _steps(state) if step != FIRST_SPACE]
    state["normalizer"] = {"type": "Sequence", "normalizers": kept} if kept else None
    made = Engine.from_str(json.dumps(state))
    made.encode_special_tokens = True
    return made


def _steps(state: dict[str, Any]) -> list[dict[str, Any]]:
    """The normalizers of an engine, in order."""
    normalizer = state["normalizer"] or {"type": "Sequence", "normalizers": []}
    return list(normalizer["normalizers"]) if normalizer["type"] == "Sequence" else [normalizer]
