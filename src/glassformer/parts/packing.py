"""Packing: sentences one after another in a row, so that no place is left to padding.

M sentences, T length of a row, S length of a row of keys
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Packed:
    """Where each sentence of a row begins, the same in all rows of a batch; together they fill the row.

    No sentence has more than `longest` tokens, and nearly all have no more than `usual`.
    """

    starts: Tensor  # (M + 1), int32: the last one is the end of the row
    longest: int
    usual: int

    def numbers(self, length: int) -> Tensor:
        """Which sentence each of so many tokens is from, (T)."""
        places = torch.arange(length, device=self.starts.device, dtype=self.starts.dtype)
        return torch.searchsorted(self.starts, places, right=True) - 1

    def positions(self, length: int) -> Tensor:
        """Where each token stands in its own sentence, (1, T)."""
        return (torch.arange(length, device=self.starts.device) - self.starts[self.numbers(length)])[None]


@dataclass(frozen=True)
class Spans:
    """Each sentence of the queries attends to the sentence of the same number among the keys, and to nothing else."""

    queries: Packed
    keys: Packed

    @property
    def longest(self) -> int:
        """The most tokens of a sentence on either side."""
        return max(self.queries.longest, self.keys.longest)

    @property
    def usual(self) -> int:
        """What nearly all sentences stay within on both sides."""
        return max(self.queries.usual, self.keys.usual)

    def table(self, queries: int, keys: int) -> Tensor:
        """The same as a boolean table (T, S)."""
        return self.queries.numbers(queries)[:, None] == self.keys.numbers(keys)
