"""Span corruption, as T5 learns before anything else: stretches of a text are cut out, and written down elsewhere.

    text      Thank you for inviting me to your party last week
    source    Thank you <extra_id_0> me to your party <extra_id_1> week
    target    <extra_id_0> for inviting <extra_id_1> last <extra_id_2>

N spans, B texts in a batch
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from glassformer.tasks.gathering import Pairs
from glassformer.tasks.translation import PairBatch, PairCollator

if TYPE_CHECKING:
    from glassformer.data import TokenPairs
    from glassformer.text import Tokenizer


def draw_spans(length: int, share: float, mean: float, most: int, dice: np.random.Generator) -> NDArray[np.int64]:
    """How many tokens are kept and then hidden, in turn, (N, 2): `share` of a text, in spans of `mean` tokens.

    All ways of cutting so many spans out are equally likely, also those at the very beginning or end; there are at
    most `most` of them, and a token at least between two.
    """
    hidden = min(max(round(length * share), 1), length - 1)
    count = min(max(round(hidden / mean), 1), hidden, length - hidden + 1, most)
    kept = _parts(length - hidden + 2, count + 1, dice)  # one more at both ends, which may be empty
    kept[0] -= 1
    return np.stack((kept[:-1], _parts(hidden, count, dice)), axis=1)


def _parts(total: int, count: int, dice: np.random.Generator) -> NDArray[np.int64]:
    """A number as a sum of `count` numbers, none of them 0."""
    cuts = np.sort(dice.choice(total - 1, count - 1, replace=False)) + 1
    return np.diff(np.concatenate(([0], cuts, [total])))


def corrupted(tokens: Sequence[int], spans: NDArray[np.int64], sentinels: Sequence[int]) -> tuple[list[int], list[int]]:
    """Source and target of a text: each hidden span is a sentinel in one, and stands after it in the other."""
    source, target, at = list[int](), list[int](), 0
    for (kept, hidden), sentinel in zip(spans.tolist(), sentinels, strict=False):
        source += [*tokens[at : at + kept], sentinel]
        target += [sentinel, *tokens[at + kept : at + kept + hidden]]
        at += kept + hidden
    return source + list(tokens[at:]), [*target, sentinels[len(spans)]]


def spans_of(target: Sequence[int], sentinels: Sequence[int]) -> dict[int, list[int]]:
    """What a target puts in the place of each sentinel; one that it does not explain is missing."""
    known = set(sentinels)
    spans: dict[int, list[int]] = {}
    span: list[int] = []
    for token in target:
        if token in known:
            span = spans.setdefault(token, [])
        else:
            span.append(token)
    return spans


@dataclass(frozen=True)
class Corruption:
    """How texts are corrupted: which share of the tokens is hidden, in spans of which mean length."""

    sentinels: list[int]
    closing: list[int]  # what sources end with, if anything
    share: float
    mean: float

    @classmethod
    def by(cls, tokenizer: Tokenizer, share: float, mean: float) -> Corruption:
        """With a tokenizer's sentinels, and the end of its frame."""
        return cls(tokenizer.sentinels, tokenizer.framed(""), share, mean)

    def __call__(self, tokens: Sequence[int], dice: np.random.Generator) -> tuple[list[int], list[int]]:
        """Source and target of one text."""
        spans = draw_spans(len(tokens), self.share, self.mean, len(self.sentinels) - 1, dice)
        source, target = corrupted(tokens, spans, self.sentinels)
        return [*source, *self.closing], target


@dataclass(frozen=True)
class CorruptCollator:
    """Makes batches of texts with other spans hidden each time."""

    pairs: TokenPairs | Pairs
    tokenizer: Tokenizer
    corrupt: Corruption

    def __call__(self, rows: NDArray[Any], dice: np.random.Generator) -> PairBatch:
        """A batch of some rows."""
        made = Pairs.of([self.corrupt(self.pairs.source(row).tolist(), dice) for row in rows.tolist()])
        batch = PairCollator(made, self.tokenizer.pad, self.tokenizer)(np.arange(len(rows)), dice)
        return replace(batch, rows=torch.from_numpy(rows.astype(np.int64)))
