"""Encoding: from examples to rows of numbers. A row has two sides: what is read, and what is predicted.

N examples, P rows made of them
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassformer.data.assets import Assets
from glassformer.data.store import Rows
from glassformer.recipe import Recipe
from glassformer.text import SpecialTokens, Tokenizer


@dataclass(frozen=True)
class Encoded:
    """Rows of numbers: end to end, the sides of a row one after the other; their lengths (P, 2); what was left out."""

    flat: NDArray[Any]
    lengths: NDArray[np.int64]
    counts: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, rows: Sequence[tuple[Sequence[int], Sequence[int]]], counts: Counter[str] | None = None) -> Encoded:
        """Rows, each given as its two sides."""
        lengths = np.array([[len(source), len(target)] for source, target in rows], np.int64).reshape(-1, 2)
        flat = np.array([number for row in rows for side in row for number in side], np.uint32)
        return cls(flat, lengths, +(counts or Counter()))

    def rows(self) -> Rows:
        """The same as rows in memory."""
        return Rows(self.flat, self.lengths.astype(np.int32))


Encode = Callable[[list[Any]], Encoded]


@dataclass(frozen=True)
class Context:
    """What an encoder is made for: a recipe, its tokenizers and labels, and whether every example must be kept."""

    recipe: Recipe
    assets: Assets
    keep_all: bool = False  # of held-out examples none may be lost

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of what is read."""
        return self.assets.tokenizers[0]

    @property
    def max_tokens(self) -> int:
        """The longest text, in tokens."""
        return self.recipe.data.max_tokens


@dataclass(frozen=True)
class PairEncoder:
    """Both sides are texts. Pairs over the limit are treated as `long` says: drop, truncate, split."""

    source: Tokenizer
    target: Tokenizer
    limit: int
    long: str
    keep_all: bool
    special: SpecialTokens | None = None  # which special tokens stand around

    def __call__(self, pairs: list[Any]) -> Encoded:
        """The rows of some pairs of texts."""
        counts: Counter[str] = Counter()
        sides = [
            encode(tokenizer, [pair[side] for pair in pairs], self.keep_all)
            for side, tokenizer in enumerate((self.source, self.target))
        ]
        both = np.stack([sizes for _, sizes in sides], axis=1)  # (N, 2)
        limit = self.limit if self.special is None else self.special.room(self.limit)
        found = pieces(both, limit, self.long)
        if over := int((both > limit).any(axis=1).sum()):
            counts[self.long] += over
        sizes = found[:, [2, 4]] - found[:, [1, 3]]  # (P, 2)
        full = sizes.all(axis=1)
        if not full.all():
            counts["empty"] += int((~full).sum())
            found, sizes = found[full], sizes[full]
        starts = np.cumsum(both, axis=0)[found[:, 0]] - both[found[:, 0]] + found[:, [1, 3]]  # (P, 2)
        starts[:, 1] += len(sides[0][0])
        flat = np.concatenate([ids for ids, _ in sides])[_ranges(starts.ravel(), sizes.ravel())]
        rows = Encoded(flat, sizes, counts)
        return rows if self.special is None else _with_special(rows, self.special)


@dataclass(frozen=True)
class DocumentEncoder:
    """There is one side, a text: whole, or in pieces within a limit, as few as possible and equally long.

    A `framed` piece has the start before it and the end after it; one that the task does not keep is left out.
    """

    tokenizer: Tokenizer
    limit: int | None
    framed: bool
    keeps: Callable[[Sequence[int]], bool] = bool  # of the tokens of a piece: an empty one is never kept

    def __call__(self, documents: list[Any]) -> Encoded:
        """The rows of some documents."""
        ids, sizes = self.tokenizer.encode_flat([document[0] for document in documents])
        first, last = ([self.tokenizer.start], [self.tokenizer.end]) if self.framed else ([], [])
        room = int(sizes.max(initial=1)) if self.limit is None else max(self.limit - len(first) - len(last), 1)
        found = pieces(np.stack((sizes, sizes), axis=1), room, "split")  # (P, 5)
        starts = (np.cumsum(sizes) - sizes)[found[:, 0]]
        cuts = np.stack((starts + found[:, 1], starts + found[:, 2]), axis=1).tolist()
        kept = [piece for start, end in cuts if self.keeps(piece := ids[start:end].tolist())]
        rows = [np.array([*first, *piece, *last], np.uint32) for piece in kept]
        lengths = np.array([[len(row), 0] for row in rows], np.int64).reshape(-1, 2)
        counts = Counter(split=int((sizes > room).sum()), empty=len(cuts) - len(kept))
        return Encoded(np.concatenate([np.zeros(0, np.uint32), *rows]), lengths, +counts)


def _with_special(rows: Encoded, special: SpecialTokens) -> Encoded:
    """Rows of pairs with the special tokens around their sources and before their targets."""
    before, between = special.source_prefix, [*special.source_suffix, *special.target_prefix]
    if not before and not between:
        return rows
    starts = np.cumsum(rows.lengths.sum(axis=1)) - rows.lengths.sum(axis=1)  # (P)
    first, second = np.repeat(starts, len(before)), np.repeat(starts + rows.lengths[:, 0], len(between))
    tokens = [*before * len(starts), *between * len(starts)]
    more = np.array([len(before) + len(special.source_suffix), len(special.target_prefix)])
    flat = np.insert(rows.flat, np.concatenate((first, second)), tokens)
    return Encoded(flat, rows.lengths + more, rows.counts)


def pieces(lengths: NDArray[np.int64], limit: int, long: str) -> NDArray[np.int64]:
    """Which parts of which pairs are kept, (P, 5): the pair, then from and to on its source and its target.

    A pair within the limit is one piece; a longer one is none (drop), its beginning (truncate), or several, both sides
    cut in step (split).
    """
    count = len(lengths)
    whole = np.zeros((count, 5), np.int64)
    whole[:, 0], whole[:, 2], whole[:, 4] = np.arange(count), lengths[:, 0], lengths[:, 1]
    if long == "truncate":
        whole[:, [2, 4]] = np.minimum(lengths, limit)
        return whole
    over = (lengths > limit).any(axis=1)
    rows = np.flatnonzero(over).tolist() if long == "split" else []
    found = np.concatenate([whole[~over], *(_steps(row, lengths[row], limit) for row in rows)])
    return found[np.argsort(found[:, 0], kind="stable")]


def _steps(row: int, lengths: NDArray[np.int64], limit: int) -> NDArray[np.int64]:
    """The pieces of a long pair: as few as possible, equally long."""
    count = -(-int(lengths.max()) // limit)
    cuts = lengths * np.arange(count + 1)[:, None] // count  # (P + 1, 2)
    sides = (cuts[:-1, 0], cuts[1:, 0], cuts[:-1, 1], cuts[1:, 1])
    return np.stack((np.full(count, row), *sides), axis=1)


def _ranges(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """The numbers start, start + 1, … of each range, one range after another."""
    ends = np.cumsum(lengths)
    indices: NDArray[np.int64] = np.arange(int(lengths.sum())) + np.repeat(starts - (ends - lengths), lengths)
    return indices


def encode(tokenizer: Tokenizer, texts: list[str], keep_all: bool) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """The ids of texts end to end, and their counts; to keep all, a text without tokens becomes an unknown one."""
    ids, sizes = tokenizer.encode_flat(texts)
    if keep_all and not sizes.all():
        ids = np.insert(ids, (np.cumsum(sizes) - sizes)[sizes == 0], tokenizer.unknown)
        sizes = np.maximum(sizes, 1)
    return ids, sizes
