"""The plan of an epoch: which pairs go together, and in which order their batches come.

N pairs
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from glassformer.data.store import Lengths
from glassformer.errors import ConfigurationError

POOL = 1_000_000  # pairs among which those of like length are put together


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


def make_plan(pairs: Examples, batch_tokens: int, seed: int, epoch: int, shuffle: bool) -> Plan:
    """The batches of an epoch: shuffle all, sort by length within pools, cut into batches, shuffle the batches."""
    dice = np.random.default_rng([seed % 2**64, epoch])
    order = np.arange(len(pairs.lengths), dtype=np.int32)
    if shuffle:
        dice.shuffle(order)
    counts = []
    for first in range(0, len(order), POOL):
        pool = order[first : first + POOL]
        lengths = pairs.lengths[pool] + np.array([0, 1], np.int32)  # the end is a target's last token
        arranged = arrange(lengths)
        pool[:] = pool[arranged]
        counts.append(cut(lengths[arranged].max(axis=1), batch_tokens))
    sizes = np.concatenate(counts)
    if not shuffle:
        return Plan(order, np.concatenate(([0], np.cumsum(sizes))))
    starts = np.cumsum(sizes) - sizes
    turn = dice.permutation(len(sizes))
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


def cut(widths: NDArray[np.int32], batch_tokens: int) -> NDArray[np.int64]:
    """The sizes of batches, each as long as rows times the widest row stays within the budget."""
    widest = int(widths.max())
    if widest > batch_tokens:
        raise ConfigurationError(
            f"a pair of {widest} tokens does not fit into a batch of {batch_tokens}: "
            "raise train.batch_tokens or lower data.max_tokens"
        )
    sizes, at = [], 0
    while at < len(widths):
        ahead = np.maximum.accumulate(widths[at : at + batch_tokens // int(widths[at])])
        size = int(np.searchsorted(ahead * np.arange(1, len(ahead) + 1, dtype=np.int64), batch_tokens, side="right"))
        sizes.append(size)
        at += size
    return np.array(sizes, np.int64)
