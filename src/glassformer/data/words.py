"""Words: sentences as tokens that know which word they end, so that each word can have an answer of its own.

    <start> the do ##g can fish <end>
             0       1   2   3            the words that end there

A word is answered for at its last token, where a model that reads from left to right has read all of it.

N sentences, P pieces of them
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from glassformer.data.encoding import Rows
from glassformer.data.report import Pair, Report
from glassformer.text import Tokenizer


@dataclass
class Piece:
    """Some words of a sentence, framed: their tokens, and where each word's last one stands."""

    tokens: list[int] = field(default_factory=list)
    lasts: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Words:
    """Makes pieces of at most `limit` tokens of sentences, cut between words; a word longer than that is cut off."""

    tokenizer: Tokenizer
    limit: int

    def __call__(self, sentences: Sequence[list[str]]) -> list[list[Piece]]:
        """The pieces of each sentence, in their order: each of its words is in one of them."""
        before, after = self.tokenizer.around()
        room = max(1, self.limit - len(before) - len(after))
        spelled = self.tokenizer.spelled([" ".join(words) for words in sentences])
        found = []
        for words, (ids, spans) in zip(sentences, spelled, strict=True):
            pieces = [Piece([*before])]
            for tokens in self._each(words, ids, spans):
                if pieces[-1].lasts and len(pieces[-1].tokens) - len(before) + len(tokens) > room:
                    pieces.append(Piece([*before]))
                pieces[-1].tokens += tokens[:room]
                pieces[-1].lasts.append(len(pieces[-1].tokens) - 1)
            for piece in pieces:
                piece.tokens += after
            found.append(pieces)
        return found

    def _each(self, words: list[str], ids: list[int], spans: list[tuple[int, int]]) -> Iterator[list[int]]:
        """The tokens of each word and of the space before it; a word that the tokenizer leaves out is unknown."""
        token, end = 0, -1
        for word in words:
            end, first = end + 1 + len(word), token
            while token < len(ids) and spans[token][0] < end:
                token += 1
            yield ids[first:token] or [self.tokenizer.unknown]


@dataclass(frozen=True)
class TagEncoder:
    """One row a piece: what is read, then for each token the number of its word's tag plus 1, or 0: not asked for."""

    words: Words
    labels: list[str]

    def __call__(self, sources: list[str], targets: list[str]) -> Rows:
        """The rows of those sentences whose tags are all known."""
        numbers = {label: number for number, label in enumerate(self.labels, start=1)}
        tagged = [(source.split(), target.split()) for source, target in zip(sources, targets, strict=True)]
        known = [(words, [numbers[tag] for tag in tags]) for words, tags in tagged if numbers.keys() >= {*tags}]
        flat, lengths, split = list[int](), list[int](), 0
        for pieces, (_, tags) in zip(self.words([words for words, _ in known]), known, strict=True):
            split += len(pieces) > 1
            for piece in pieces:
                right, tags = dict(zip(piece.lasts, tags, strict=False)), tags[len(piece.lasts) :]
                flat += [*piece.tokens, *(right.get(place, 0) for place in range(len(piece.tokens)))]
                lengths.append(len(piece.tokens))
        counts = Counter(label=len(sources) - len(known), split=split)
        return Rows(np.array(flat, np.uint32), np.array(lengths, np.int64)[:, None].repeat(2, axis=1), +counts)


def as_many(pairs: Iterator[Pair], report: Report, strict: bool) -> Iterator[Pair]:
    """The pairs that have a tag for each word; others are bad rows."""
    for pair in pairs:
        words, tags = len(pair.source.split()), len(pair.target.split())
        if words == tags:
            yield pair
        else:
            report.read -= 1  # which counts it again
            report.add_bad("not a tag a word", pair.place, f"has {words} words but {tags} tags", strict)
