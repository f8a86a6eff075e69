"""The plan of an epoch: which pairs go together, and in which order their batches come.

N pairs, M blocks of neighbours, K blocks in a batch at most
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from glassformer.data.store import Lengths
from glassformer.errors import ConfigurationError

POOL = 1_000_000  # pairs among which those of like length are put together
BLOCKS = 32  # neighbours that make up a full batch, about: batches begin and end where these do
LITTLE = 0.01  # padding that is not worth thinking about: large corpora have no more
EVEN = 64  # rows of a stream are multiples of so many tokens
USUAL = 0.9  # the share of sentences that are usual
STEP = 0.25  # the price of a batch, in full batches of one side: padding that saves less is not worth another


@dataclass(frozen=True)
class Grid:
    """The few shapes that batches have where every new shape takes time to prepare: on a GPU.

    Lengths are multiples of `multiple`, unless they would exceed `longest`, the positions that a model has learned; the
    rows are a quarter, a half, three quarters or all of what fits.
    """

    batch_tokens: int
    multiple: int = 4
    longest: int | None = None

    def lengths(self, lengths: NDArray[np.int32]) -> NDArray[np.int32]:
        """Lengths rounded up, unless a row would then not fit into a batch or into the model."""
        most = self.batch_tokens if self.longest is None else min(self.batch_tokens, self.longest)
        rounded = -(-lengths // self.multiple) * self.multiple
        return np.where(rounded > most, lengths, rounded)

    def rows(self, rows: int, longest: int) -> int:
        """Rows of this length, rounded up."""
        quarter = -(-max(self.batch_tokens // max(longest, 1), rows) // 4)
        return -(-rows // quarter) * quarter


@dataclass(frozen=True)
class Stream:
    """One shape for all batches: a row of tokens for each side, sentences one after another, in no order.

    A row is filled up with sentences that do not count, so that `slots` are more than the `sentences` of a batch.
    """

    tokens: tuple[int, int]  # of the source's row and of the target's
    sentences: int  # at most
    longest: int  # tokens of a sentence
    usual: int  # tokens that nearly all sentences stay within

    @property
    def slots(self) -> int:
        """The sentences of a batch, with those that fill it up."""
        return self.sentences + -(-max(self.tokens) // self.longest)


Shape = Grid | Stream


class Examples(Protocol):
    """What is known of examples before they are read: how long each is, on both sides, (N, 2)."""

    @property
    def lengths(self) -> Lengths:
        """The tokens of each side."""
        ...


@dataclass(frozen=True)
class Plan:
    """An epoch's batches: batch i holds the rows `order[cuts[i]:cuts[i + 1]]`."""

    order: NDArray[np.int32]
    cuts: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.cuts) - 1

    def rows(self, batch: int) -> NDArray[np.int32]:
        """The rows of a batch."""
        return self.order[self.cuts[batch] : self.cuts[batch + 1]]

    def tokens(self, lengths: Lengths) -> NDArray[np.int64]:
        """How many tokens of its rows come before each batch, and in the end how many there are, by their lengths."""
        each = np.asarray(lengths).sum(axis=1, dtype=np.int64)[self.order]
        return np.concatenate(([0], np.cumsum(each)))[self.cuts]


def make_plan(
    pairs: Examples, batch_tokens: int, seed: int, epoch: int, shuffle: bool, shape: Shape | None = None
) -> Plan:
    """The batches of an epoch: shuffle all, sort by length within pools, cut into batches, shuffle the batches.

    Those of a stream are cut as the pairs come.
    """
    rng = np.random.default_rng([seed % 2**64, epoch])
    order = np.arange(len(pairs.lengths), dtype=np.int32)
    if shuffle:
        rng.shuffle(order)
    counts = []
    for first in range(0, len(order), POOL):
        pool = order[first : first + POOL]
        lengths = written(pairs.lengths[pool])
        if isinstance(shape, Stream):
            counts.append(fill(lengths, shape))
            continue
        lengths = lengths if shape is None else shape.lengths(lengths)
        arranged = arrange(lengths)
        pool[:] = pool[arranged]
        counts.append(divide(lengths[arranged], batch_tokens))
    sizes = np.concatenate(counts)
    if not shuffle or isinstance(shape, Stream):
        return Plan(order, np.concatenate(([0], np.cumsum(sizes))))
    starts = np.cumsum(sizes) - sizes
    turn = rng.permutation(len(sizes))
    sizes, starts = sizes[turn], starts[turn]
    cuts = np.concatenate(([0], np.cumsum(sizes)))
    index = np.arange(len(order)) + np.repeat(starts - cuts[:-1], sizes)
    return Plan(order[index], cuts)


def arrange(lengths: NDArray[np.int32]) -> NDArray[np.int64]:
    """The order in which neighbours are alike on both sides: by the longer side, then by how the sides differ.

    The difference rises and falls in turn, so that it does not jump where the longer side grows by one.
    """
    width, lean = lengths.max(axis=1).astype(np.int64), lengths[:, 0].astype(np.int64) - lengths[:, 1]
    most = 2 * int(width.max()) + 1
    return np.argsort(width * most + np.where(width % 2, -lean, lean), kind="stable")


def stream_for(pairs: Examples, batch_tokens: int) -> Stream:
    """The stream of some pairs: the side with more tokens fills its row, and the other has room for as many sentences.

    Sides differ from sentence to sentence, so that the other row is longer than on average by a standard deviation. The
    batches of an epoch are alike: where there are few of them, rows are shorter than the budget.
    """
    lengths = written(pairs.lengths)
    _check(int(lengths.max()), batch_tokens)
    totals, longest = lengths.sum(axis=0, dtype=np.int64), lengths.max(axis=0).astype(int)
    side = int(totals.argmax())
    mean = totals[side] / len(lengths)
    batches = np.ceil(totals[side] / max(batch_tokens - mean, 1))  # whose ends are too short for another sentence
    tokens = [0, 0]
    tokens[side] = min(batch_tokens, _even(totals[side] / batches + longest[side]))
    count = tokens[side] / mean  # sentences of a batch, on average
    ratio = totals[1 - side] / totals[side]
    spread = float(np.std(lengths[:, 1 - side] - ratio * lengths[:, side])) * count**0.5
    other = max(tokens[side] * ratio + spread, longest[1 - side])
    tokens[1 - side] = min(batch_tokens, _even(other))
    usual = int(np.quantile(lengths.max(axis=1), USUAL))
    return Stream((tokens[0], tokens[1]), int(1.1 * count) + 16, int(longest.max()), usual)


def _even(tokens: float) -> int:
    """So many tokens, rounded up to what matrix products are fast with."""
    return -(-int(np.ceil(tokens)) // EVEN) * EVEN


def fill(lengths: NDArray[np.int32], stream: Stream) -> NDArray[np.int64]:
    """The sizes of batches that a stream holds, each with as many of the next pairs as there is room for.

    If as many batches have room for it, all get as many tokens, so that the last is like the others.
    """
    for longest, tokens in zip(lengths.max(axis=0).tolist(), stream.tokens, strict=True):
        _check(longest, tokens)
    ends = np.cumsum(lengths, axis=0, dtype=np.int64)  # (N, 2)
    cuts, before = [0], np.zeros(2, np.int64)
    while cuts[-1] < len(lengths):
        room = [np.searchsorted(ends[:, side], before[side] + stream.tokens[side], side="right") for side in (0, 1)]
        cuts.append(min(*map(int, room), cuts[-1] + stream.sentences))
        before = ends[cuts[-1] - 1]
    even = _shared(ends, len(cuts) - 1)
    taken = np.diff(np.concatenate((np.zeros((1, 2), np.int64), ends))[even], axis=0)  # (batches, 2)
    alike = (taken <= stream.tokens).all() and np.diff(even).max() <= stream.sentences
    return np.diff(even if alike else cuts)


def _shared(ends: NDArray[np.int64], batches: int) -> NDArray[np.int64]:
    """Where so many batches begin and end that each have as many tokens of both sides."""
    tokens = ends.sum(axis=1)
    shares = tokens[-1] * np.arange(1, batches) // batches
    return np.concatenate(([0], np.searchsorted(tokens, shares, side="right"), [len(ends)]))


def written(lengths: Lengths) -> NDArray[np.int32]:
    """The lengths (N, 2) of pairs as they are computed: the end is a target's last token."""
    return np.asarray(lengths) + np.array([0, 1], np.int32)


def divide(lengths: NDArray[np.int32], batch_tokens: int) -> NDArray[np.int64]:
    """The sizes of batches, each within the budget, that cost least together.

    A batch costs its places, rows · (longest source + longest target), and a fixed price. Filling each to the brim
    may cost more: where lengths jump, a batch is better ended early.
    """
    widest = int(lengths.max())
    _check(widest, batch_tokens)
    full = cut(lengths.max(axis=1), batch_tokens)
    if _padding(lengths, full) < LITTLE:
        return full
    blocks = cut(lengths.max(axis=1), max(batch_tokens // BLOCKS, widest))  # (M)
    costs = _costs(lengths, blocks, batch_tokens)  # (M, K)
    count, most = costs.shape
    least = np.zeros(count + most)  # from each block to the end
    joined = np.zeros(count, np.int64)  # blocks in the batch that begins with each
    for first in range(count - 1, -1, -1):
        totals = costs[first] + least[first + 1 : first + 1 + most]
        joined[first] = totals.argmin() + 1
        least[first] = totals[joined[first] - 1]
    starts = [0]
    while starts[-1] < count:
        starts.append(starts[-1] + int(joined[starts[-1]]))
    return np.add.reduceat(blocks, starts[:-1])


def _check(widest: int, batch_tokens: int) -> None:
    """Refuse a pair that is larger than a batch."""
    if widest > batch_tokens:
        raise ConfigurationError(
            f"a pair of {widest} tokens does not fit into a batch of {batch_tokens}: "
            "raise train.batch_tokens or lower data.max_tokens"
        )


def _padding(lengths: NDArray[np.int32], sizes: NDArray[np.int64]) -> float:
    """The share of places that hold no token."""
    longest = np.maximum.reduceat(lengths, np.cumsum(sizes) - sizes, axis=0).sum(axis=1)
    return 1 - float(lengths.sum(dtype=np.int64) / (sizes * longest).sum())


def _costs(lengths: NDArray[np.int32], blocks: NDArray[np.int64], batch_tokens: int) -> NDArray[np.float64]:
    """What batches of 1, 2, … K blocks cost that begin with each of M blocks; what does not fit costs the world."""
    ends = np.concatenate(([0], np.cumsum(blocks)))  # (M + 1)
    longest = np.maximum.reduceat(lengths, ends[:-1], axis=0).astype(np.int64)  # (M, 2)
    count, columns, so_far = len(blocks), [], np.zeros_like(longest)
    for last in range(count):
        so_far = np.maximum(so_far[: count - last], longest[last:])  # (M - last, 2)
        rows = ends[last + 1 :] - ends[: count - last]  # (M - last)
        fits = rows * so_far.max(axis=1) <= batch_tokens
        if not fits.any():
            break
        column = np.full(count, np.inf)
        column[: count - last][fits] = (rows * so_far.sum(axis=1) + STEP * batch_tokens)[fits]
        columns.append(column)
    return np.stack(columns, axis=1)


def cut(widths: NDArray[np.int32], budget: int) -> NDArray[np.int64]:
    """The sizes of stretches, each as long as rows times the widest row stays within the budget."""
    sizes, at = [], 0
    while at < len(widths):
        ahead = np.maximum.accumulate(widths[at : at + budget // int(widths[at])])
        size = int(np.searchsorted(ahead * np.arange(1, len(ahead) + 1, dtype=np.int64), budget, side="right"))
        sizes.append(size)
        at += size
    return np.array(sizes, np.int64)
