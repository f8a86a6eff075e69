"""Encoding: from the texts of examples to rows of token ids, each task in its own way.

A row has two sides, as an example has: what is read, and what should be answered.

N examples, P rows made of them
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from glassformer.data.files import BETWEEN
from glassformer.text import Habits, Tokenizer


@dataclass(frozen=True)
class Rows:
    """Rows of ids: end to end, the two sides of a row one after the other; their lengths (P, 2); what was left out."""

    flat: NDArray[np.uint32]
    lengths: NDArray[np.int64]
    counts: Counter[str] = field(default_factory=Counter)


Encode = Callable[[list[str], list[str]], Rows]


@dataclass(frozen=True)
class PairEncoder:
    """Both sides are texts. Pairs longer than the limit are treated as `long` says; `whole`: none may be lost."""

    source: Tokenizer
    target: Tokenizer
    limit: int
    long: str  # drop, truncate, split
    whole: bool
    habits: Habits | None = None  # which special tokens stand around

    def __call__(self, sources: list[str], targets: list[str]) -> Rows:
        """The rows of some pairs."""
        counts: Counter[str] = Counter()
        sides = [encode(self.source, sources, self.whole), encode(self.target, targets, self.whole)]
        both = np.stack([sizes for _, sizes in sides], axis=1)  # (N, 2)
        limit = self.limit if self.habits is None else self.habits.room(self.limit)
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
        flat = np.concatenate([ids for ids, _ in sides])[stretches(starts.ravel(), sizes.ravel())]
        rows = Rows(flat, sizes, counts)
        return rows if self.habits is None else with_habits(rows, self.habits)


@dataclass(frozen=True)
class LabelEncoder:
    """One side is a text, or two, in the frame that encoders expect; the other is the number of a label."""

    tokenizer: Tokenizer
    labels: list[str]
    limit: int

    def __call__(self, sources: list[str], targets: list[str]) -> Rows:
        """The rows of those examples whose label is known."""
        numbers = {label: number for number, label in enumerate(self.labels)}
        known = [row for row, target in enumerate(targets) if target in numbers]
        texts = [sources[row].split(BETWEEN) for row in known]
        framed, long = self.tokenizer.frame_within(texts, self.limit)
        counts = Counter(label=len(targets) - len(known), truncate=len(long))
        rows = [[*ids, numbers[targets[row]]] for row, ids in zip(known, framed, strict=True)]
        lengths = np.array([[len(row) - 1, 1] for row in rows], np.int64).reshape(-1, 2)
        return Rows(np.array([number for row in rows for number in row], np.uint32), lengths, +counts)


@dataclass(frozen=True)
class DocumentEncoder:
    """There is one side, a text: whole, or in pieces within a limit, as few as will do and equally long.

    A `framed` piece has the start before it and the end after it; one of fewer than `least` tokens is left out.
    """

    tokenizer: Tokenizer
    limit: int | None
    framed: bool
    least: int = 1

    def __call__(self, sources: list[str], targets: list[str]) -> Rows:
        """The rows of some texts."""
        ids, sizes = self.tokenizer.encode_flat(sources)
        first, last = ([self.tokenizer.start], [self.tokenizer.end]) if self.framed else ([], [])
        room = int(sizes.max(initial=1)) if self.limit is None else max(self.limit - len(first) - len(last), 1)
        found = pieces(np.stack((sizes, sizes), axis=1), room, "split")  # (P, 5)
        full = found[:, 2] - found[:, 1] >= self.least
        starts = (np.cumsum(sizes) - sizes)[found[:, 0]]
        cuts = np.stack((starts + found[:, 1], starts + found[:, 2]), axis=1)[full].tolist()
        rows = [np.array([*first, *ids[start:end].tolist(), *last], np.uint32) for start, end in cuts]
        lengths = np.array([[len(row), 0] for row in rows], np.int64).reshape(-1, 2)
        counts = Counter(split=int((sizes > room).sum()), empty=int((~full).sum()))
        return Rows(np.concatenate([np.zeros(0, np.uint32), *rows]), lengths, +counts)


def document_encoder(task: str, tokenizer: Tokenizer, limit: int) -> DocumentEncoder:
    """What makes rows of documents for a task: packed end to end later, or each by itself, cut to the limit."""
    if task == "language-modelling":
        return DocumentEncoder(tokenizer, None, framed=True)
    if task == "masked-language-modelling":
        return DocumentEncoder(tokenizer, limit, framed=True)
    return DocumentEncoder(tokenizer, limit, framed=False, least=2)


def with_habits(rows: Rows, habits: Habits) -> Rows:
    """Rows of pairs with the special tokens around their sources and before their targets."""
    between = [*habits.after, *habits.lead]
    if not habits.before and not between:
        return rows
    starts = np.cumsum(rows.lengths.sum(axis=1)) - rows.lengths.sum(axis=1)  # (P)
    first, second = np.repeat(starts, len(habits.before)), np.repeat(starts + rows.lengths[:, 0], len(between))
    tokens = [*habits.before * len(starts), *between * len(starts)]
    more = np.array([len(habits.before) + len(habits.after), len(habits.lead)])
    flat = np.insert(rows.flat, np.concatenate((first, second)), tokens)
    return Rows(flat, rows.lengths + more, rows.counts)


def pieces(lengths: NDArray[np.int64], limit: int, long: str) -> NDArray[np.int64]:
    """Which stretches of which pairs are kept, (P, 5): the pair, then from and to on its source and its target.

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
    """The pieces of a long pair: as few as will do, equally long."""
    count = -(-int(lengths.max()) // limit)
    cuts = lengths * np.arange(count + 1)[:, None] // count  # (P + 1, 2)
    sides = (cuts[:-1, 0], cuts[1:, 0], cuts[:-1, 1], cuts[1:, 1])
    return np.stack((np.full(count, row), *sides), axis=1)


def stretches(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """The places start, start + 1, … of each stretch, one stretch after another."""
    ends = np.cumsum(lengths)
    places: NDArray[np.int64] = np.arange(int(lengths.sum())) + np.repeat(starts - (ends - lengths), lengths)
    return places


def encode(tokenizer: Tokenizer, texts: list[str], whole: bool) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """The ids of texts end to end, and their counts; if all must be kept, a text without tokens is an unknown one."""
    ids, sizes = tokenizer.encode_flat(texts)
    if whole and not sizes.all():
        ids = np.insert(ids, (np.cumsum(sizes) - sizes)[sizes == 0], tokenizer.unknown)
        sizes = np.maximum(sizes, 1)
    return ids, sizes
