"""Words: a text is split like by the `word` tokenizer, without spaces and punctuation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property

from tokenizers import pre_tokenizers

from glassformer.errors import InputError
from glassformer.text.kinds import WORD

Cut = Callable[[str], list[str]]
CUTTER = pre_tokenizers.Split(WORD, behavior="isolated")


def words_of(text: str, lowercase: bool = True) -> list[str]:
    """The words of a text in order: sequences of letters, marks and digits."""
    pieces = (piece.strip() for piece, _ in CUTTER.pre_tokenize_str(text.lower() if lowercase else text))
    return [piece for piece in pieces if piece and (piece[0].isalnum() or piece[0] == "_")]


@dataclass(frozen=True)
class Vocabulary:
    """A list of words; the number of a word is its index."""

    words: list[str]

    @classmethod
    def of(cls, texts: Iterable[str], cut: Cut = words_of, most: int | None = None) -> Vocabulary:
        """The words of some texts in alphabetical order; if there are more than `most`, the most frequent ones."""
        counts = Counter(word for text in texts for word in cut(text))
        if not counts:
            raise InputError("there is nothing to count: no word in any text")
        kept = sorted(counts, key=lambda word: (-counts[word], word))[:most]
        return cls(sorted(kept))

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The number of each word."""
        return {word: number for number, word in enumerate(self.words)}

    def number(self, word: str) -> int:
        """The number of a word; an error if it is not in the vocabulary."""
        if word not in self.numbers:
            near = get_close_matches(word, self.words, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {len(self.words):,} other words"
            raise InputError(f"{word!r} has no vector: {hint}")
        return self.numbers[word]

    def __len__(self) -> int:
        return len(self.words)
