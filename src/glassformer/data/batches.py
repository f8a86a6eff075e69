"""Batches: pairs of like length together, so that little is computed for nothing, in an order that can be continued.

B pairs in a batch, S source length, T target length, N pairs in all
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glassformer.data.planning import Plan, make_plan
from glassformer.data.store import TokenPairs
from glassformer.errors import InputError
from glassformer.text import Tokenizer


@dataclass(frozen=True)
class Batch:
    """Pairs to learn from together. The decoder reads `target_in` and should write `target_out`, one token ahead."""

    source: Tensor  # (B, S)
    source_mask: Tensor  # (B, S), True where there is a token
    target_in: Tensor  # (B, T), the start and the target's tokens
    target_out: Tensor  # (B, T), the target's tokens and the end
    target_mask: Tensor  # (B, T)
    rows: Tensor  # (B), which pairs these are
    source_tokens: int  # without padding
    target_tokens: int  # without padding, the end counted

    @property
    def padding(self) -> float:
        """The share of places, of both sides, that hold no token."""
        places = self.source.numel() + self.target_out.numel()
        return 1 - (self.source_tokens + self.target_tokens) / places

    def _each(self, change: Any) -> Batch:
        tensors = {name: change(value) if isinstance(value, Tensor) else value for name, value in vars(self).items()}
        return Batch(**tensors)

    def pin(self) -> Batch:
        """The same in page-locked memory, from which copies to a GPU need not be waited for."""
        return self._each(lambda tensor: tensor.pin_memory())

    def to(self, device: torch.device | str, non_blocking: bool = True) -> Batch:
        """The same on a device."""
        return self._each(lambda tensor: tensor.to(device, non_blocking=non_blocking))


def collate(pairs: TokenPairs, rows: NDArray[Any], source_pad: int, target: Tokenizer) -> Batch:
    """A batch of some rows, gathered from the flat file at once."""
    rows = rows.astype(np.int64)
    lengths = pairs.lengths[rows].astype(np.int64)  # (B, 2)
    starts = pairs.starts[rows]  # (B)
    source, source_mask = _gather(pairs.flat, starts, lengths[:, 0], source_pad, 0)  # (B, S)
    tokens, _ = _gather(pairs.flat, starts + lengths[:, 0], lengths[:, 1], target.pad, 1)  # (B, T), the last place free
    places = np.arange(tokens.shape[1])
    target_in = np.concatenate((np.full((len(rows), 1), target.start), tokens[:, :-1]), axis=1)  # (B, T)
    target_out = np.where(places == lengths[:, 1:], target.end, tokens)  # (B, T)
    return Batch(
        source=torch.from_numpy(source),
        source_mask=torch.from_numpy(source_mask),
        target_in=torch.from_numpy(target_in),
        target_out=torch.from_numpy(target_out),
        target_mask=torch.from_numpy(places <= lengths[:, 1:]),
        rows=torch.from_numpy(rows),
        source_tokens=int(lengths[:, 0].sum()),
        target_tokens=int(lengths[:, 1].sum()) + len(rows),
    )


def _gather(
    flat: NDArray[Any], starts: NDArray[np.int64], lengths: NDArray[np.int64], pad: int, more: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Stretches of a flat array as padded rows with `more` places at the end, and which places are filled."""
    places = np.arange(int(lengths.max()) + more)
    mask = places < lengths[:, None]
    index = np.minimum(starts[:, None] + places, len(flat) - 1)
    return np.where(mask, flat[index].astype(np.int64), pad), mask


class Batches:
    """All pairs, epoch after epoch, in batches of at most `batch_tokens` places on the longer side.

    Iterating gives the batches of the current epoch that are left; `share` gives a rank its part of them and of the
    epochs to come. `epoch` and `position` say which batch comes next. Without `shuffle`, pairs come sorted by length.
    """

    def __init__(
        self,
        pairs: TokenPairs,
        batch_tokens: int,
        source_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer,
        seed: int,
        shuffle: bool = True,
    ) -> None:
        if not len(pairs):
            raise InputError("there are no pairs to make batches of")
        self.pairs, self.batch_tokens, self.seed, self.shuffle = pairs, batch_tokens, seed, shuffle
        self.epoch = self.position = 0
        self._source_pad, self._target = source_tokenizer.pad, target_tokenizer
        self._planned: tuple[int, Plan] | None = None

    @property
    def batches_per_epoch(self) -> int:
        """The number of batches in the current epoch; it differs a little between epochs."""
        return len(self._plan())

    def __iter__(self) -> Iterator[Batch]:
        for _ in range(self.position, self.batches_per_epoch):
            yield self._made(self._next())

    def share(self, rank: int, ranks: int) -> Iterator[Batch]:
        """Every `ranks`-th batch from here on, without end, for one rank of several; those of the others are not made.

        However many ranks share them, together they take the same batches in the same order.
        """
        while True:
            yield self._made([self._next() for _ in range(ranks)][rank])

    def _next(self) -> NDArray[np.int32]:
        """The rows of the next batch, which counts as done."""
        plan = self._plan()
        rows = plan.rows(self.position)
        self.position += 1
        if self.position == len(plan):
            self.epoch, self.position = self.epoch + 1, 0
        return rows

    def _made(self, rows: NDArray[np.int32]) -> Batch:
        return collate(self.pairs, rows, self._source_pad, self._target)

    def _plan(self) -> Plan:
        if self._planned is None or self._planned[0] != self.epoch:
            self._planned = None  # the old plan goes before the new one comes
            self._planned = (self.epoch, make_plan(self.pairs, self.batch_tokens, self.seed, self.epoch, self.shuffle))
        return self._planned[1]

    def state_dict(self) -> dict[str, int]:
        """Where it stands: plain numbers, good for any number of ranks."""
        return {"epoch": self.epoch, "position": self.position, "of": self.batches_per_epoch, "seed": self.seed}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continue with the batch that comes next in a state; with another budget, as far through the epoch."""
        self.epoch, self.seed = state["epoch"], state["seed"]
        self._planned = None
        self.position = state["position"] * self.batches_per_epoch // state["of"]
