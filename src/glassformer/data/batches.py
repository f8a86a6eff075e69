"""Batches: examples of like length together, so that little is computed for nothing, in an order to be continued."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from glassformer.data.planning import Examples, Plan, Shape, make_plan
from glassformer.errors import InputError

Batch = TypeVar("Batch")
Collate = Callable[[NDArray[Any], np.random.Generator], Batch]  # rows, and a random generator, to a batch of them
Made = TypeVar("Made", covariant=True)
LOOKED = 100  # epochs whose batches are counted one by one


class Collator(Protocol[Made]):
    """What makes batches of examples, and knows which."""

    @property
    def pairs(self) -> Examples:
        """The examples whose rows it is given."""
        ...

    def __call__(self, rows: NDArray[Any], rng: np.random.Generator) -> Made:
        """A batch of some rows; what is drawn for it is drawn with `rng`."""
        ...


class Batches(Generic[Batch]):
    """All pairs, epoch after epoch, in batches of at most `batch_tokens` places on the longer side.

    Iterating gives the batches of the current epoch that are left; `for_rank` gives a rank its part of them and of the
    epochs to come. `epoch` and `position` say which batch comes next. Without `shuffle`, pairs come sorted by length.
    With a grid as `shape`, pairs that have the same shape on it come together; with a stream, pairs come in no order.
    """

    def __init__(
        self,
        pairs: Examples,
        batch_tokens: int,
        collate: Collate[Batch],
        seed: int,
        shuffle: bool = True,
        shape: Shape | None = None,
    ) -> None:
        if not len(pairs.lengths):
            raise InputError("there are no examples to make batches of")
        self.pairs, self.batch_tokens, self.seed, self.shuffle, self.shape = pairs, batch_tokens, seed, shuffle, shape
        self.epoch = self.position = 0
        self._collate = collate
        self._planned: tuple[int, Plan] | None = None
        self._counted: tuple[int, NDArray[np.int64]] | None = None

    @property
    def batches_per_epoch(self) -> int:
        """The number of batches in the current epoch; it differs a little between epochs."""
        return len(self._plan())

    @property
    def tokens(self) -> int:
        """How many tokens of the examples were handed out so far: both sides, without padding or marks around them."""
        if self._counted is None or self._counted[0] != self.epoch:
            self._counted = (self.epoch, self._plan().tokens(self.pairs.lengths))
        counts = self._counted[1]
        return self.epoch * int(counts[-1]) + int(counts[self.position])

    def steps_for(self, tokens: int, batches: int = 1) -> int:
        """How many steps of so many batches it takes, from the beginning, until this many tokens are handed out.

        Epochs hold the same tokens in a few batches more or less; beyond the first hundred, in as many on average.
        """
        epochs, before_last = divmod(tokens - 1, int(self.pairs.lengths.sum(dtype=np.int64)))
        taken = [len(self._planned_for(epoch)) for epoch in range(min(epochs, LOOKED))]
        whole = sum(taken) if epochs <= LOOKED else round(sum(taken) / LOOKED * epochs)
        last = int(np.searchsorted(self._planned_for(epochs).tokens(self.pairs.lengths), before_last + 1))
        return -(-(whole + last) // batches)

    def __iter__(self) -> Iterator[Batch]:
        for _ in range(self.position, self.batches_per_epoch):
            yield self._collate(*self._next())

    def for_rank(self, rank: int, ranks: int) -> Iterator[Batch]:
        """Every `ranks`-th batch from here on, without end, for one rank of several; those of the others are not made.

        However many ranks share them, together they take the same batches in the same order.
        """
        while True:
            yield self._collate(*[self._next() for _ in range(ranks)][rank])

    def _next(self) -> tuple[NDArray[np.int32], np.random.Generator]:
        """The rows of the next batch, which counts as done, and its own random generator."""
        plan = self._plan()
        rows, rng = plan.rows(self.position), np.random.default_rng([self.seed % 2**64, self.epoch, self.position])
        self.position += 1
        if self.position == len(plan):
            self.epoch, self.position = self.epoch + 1, 0
        return rows, rng

    def _plan(self) -> Plan:
        if self._planned is None or self._planned[0] != self.epoch:
            self._planned = None  # the old plan goes before the new one comes
            self._planned = (self.epoch, self._planned_for(self.epoch))
        return self._planned[1]

    def _planned_for(self, epoch: int) -> Plan:
        return make_plan(self.pairs, self.batch_tokens, self.seed, epoch, self.shuffle, self.shape)

    def state_dict(self) -> dict[str, int]:
        """Where it stands: plain numbers, good for any number of ranks."""
        return {"epoch": self.epoch, "position": self.position, "of": self.batches_per_epoch, "seed": self.seed}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continue with the batch that comes next in a state; with another budget, as far through the epoch."""
        self.epoch, self.seed = state["epoch"], state["seed"]
        self._planned = self._counted = None
        self.position = state["position"] * self.batches_per_epoch // state["of"]
