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
    pairs: Examples, batch_tokens: int, seed: int, epoch: int, shuffle: bool, grid: Grid | None = None
) -> Plan:
    """The batches of an epoch: shuffle all, sort by length within pools, cut into batches, shuffle the batches."""
    rng = np.random.default_rng([seed % 2**64, epoch])
    order = np.arange(len(pairs.lengths), dtype=np.int32)
    if shuffle:
        rng.shuffle(order)
    counts = []
    for first in range(0, len(order), POOL):
        pool = order[first : first + POOL]
        lengths = pairs.lengths[pool] + np.array([0, 1], np.int32)  # the end is a target's last token
        lengths = lengths if grid is None else grid.lengths(lengths)
        arranged = arrange(lengths)
        pool[:] = pool[arranged]
        counts.append(divide(lengths[arranged], batch_tokens))
    sizes = np.concatenate(counts)
    if not shuffle:
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


def divide(lengths: NDArray[np.int32], batch_tokens: int) -> NDArray[np.int64]:
    """The sizes of batches, each within the budget, that cost least together.

    A batch costs its places, rows · (longest source + longest target), and a fixed price. Filling each to the brim
    may cost more: where lengths jump, a batch is better ended early.
    """
    widest = int(lengths.max())
    if widest > batch_tokens:
        raise ConfigurationError(
            f"a pair of {widest} tokens does not fit into a batch of {batch_tokens}: "
            "raise train.batch_tokens or lower data.max_tokens"
        )
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
