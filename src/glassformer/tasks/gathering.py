"""Gathering: stretches of a long row of tokens, side by side.

B stretches or pairs, S their length
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Pairs:
    """Pairs in memory, laid out as those on disk."""

    flat: NDArray[Any]
    lengths: NDArray[np.int32]  # (B, 2)

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Where each pair's source stands, (B); its target follows."""
        both = self.lengths.sum(axis=1, dtype=np.int64)
        starts: NDArray[np.int64] = np.cumsum(both) - both
        return starts

    def source(self, row: int) -> NDArray[Any]:
        """The source's ids of a pair."""
        start = int(self.starts[row])
        return self.flat[start : start + int(self.lengths[row, 0])]

    @classmethod
    def of(cls, pairs: Sequence[tuple[list[int], list[int]]]) -> Pairs:
        """The pairs of some sources and targets."""
        lengths = np.array([[len(source), len(target)] for source, target in pairs], np.int32).reshape(-1, 2)
        return cls(np.array([token for pair in pairs for side in pair for token in side], np.int64), lengths)


def gathered(
    flat: NDArray[Any], starts: NDArray[np.int64], lengths: NDArray[np.int64], pad: int, more: int = 0
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Stretches of a flat array as padded rows (B, S) with `more` places at the end, and which places are filled."""
    places = np.arange(int(lengths.max()) + more)
    mask = places < lengths[:, None]
    index = np.minimum(starts[:, None] + places, len(flat) - 1)
    return np.where(mask, flat[index].astype(np.int64), pad), mask
