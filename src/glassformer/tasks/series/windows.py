"""Windows: stretches of a series, as many steps as a model reads, and what is to be predicted after them.

A row of the store is a whole series, its numbers as the bits of float32; windows are cut from it when batches are made,
so that a series is held once, however many windows it has.

B windows in a batch, T steps that are read, h steps that are predicted, C columns, P columns that are predicted
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glassformer.data import Rows
from glassformer.data.examples import Series
from glassformer.data.store import Lengths
from glassformer.tasks.protocol import Learner, Tensors

Values = NDArray[np.float64]
NO_LABEL = 2**32 - 1  # the number of a step without a label
LEAST_SPREAD = 1e-4  # of a window, relative to its level: one that never changes is not blown up


@dataclass(frozen=True)
class Frame:
    """What of a window is read, and what is predicted: steps, and the numbers of columns."""

    window: int
    horizon: int  # 0: a label
    ahead: int  # steps from the last that is read to the first that is predicted
    read: tuple[int, ...]
    predicted: tuple[int, ...]

    @property
    def first(self) -> int:
        """The first step that is predicted."""
        return self.window + self.ahead - 1

    @property
    def steps(self) -> int:
        """All steps of a window, with what is to be predicted."""
        return max(self.window, self.first + self.horizon)

    def history(self, values: Values) -> Values:
        """What is read of windows (…, steps, C)."""
        return values[..., : self.window, self.read]

    def truth(self, values: Values) -> Values:
        """What is to be predicted of windows (…, steps, C)."""
        return values[..., self.first : self.first + self.horizon, self.predicted]


def table(series: Series) -> Values:
    """The numbers of a series (T, C), NaN where one is missing."""
    return np.array(series.values, np.float64).reshape(-1, len(series.columns))


def cut(series: Series, frame: Frame, stride: int) -> Iterator[Series]:
    """The windows of a series, so many steps apart, that can be scored: something is known of each side."""
    values = table(series)
    for start in range(0, len(series.values) - frame.steps + 1, stride):
        some = values[start : start + frame.steps]
        known = not np.isnan(frame.history(some)).all()
        if frame.horizon:
            known = known and not np.isnan(frame.truth(some)).all()
        elif series.labels:
            known = known and series.labels[start + frame.window - 1] is not None
        if known:
            yield series.part(start, start + frame.steps)


def standard(history: Values) -> tuple[Values, Values]:
    """The level and the spread of each column of each window (B, T, C): mean and deviation, (B, 1, C)."""
    known = ~np.isnan(history)
    count = np.maximum(known.sum(axis=1, keepdims=True), 1)
    level = np.where(known, history, 0.0).sum(axis=1, keepdims=True) / count
    spread = np.sqrt(np.where(known, (history - level) ** 2, 0.0).sum(axis=1, keepdims=True) / count)
    spread = np.maximum(spread, LEAST_SPREAD * np.abs(level))
    return level, np.where(spread > 0, spread, 1.0)


@dataclass(frozen=True)
class Windows:
    """The windows of all series in the store, so many steps apart."""

    rows: Rows
    frame: Frame
    columns: int
    stride: int

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Where the numbers of each window begin, and the number of its label: (N, 2)."""
        found = [np.zeros((0, 2), np.int64)]
        for row in range(len(self.rows)):
            start, size = int(self.rows.starts[row]), int(self.rows.lengths[row, 0])
            numbers = self.rows.source(row).view(np.float32).reshape(-1, self.columns)
            at = np.arange(0, len(numbers) - self.frame.steps + 1, self.stride)
            if not len(at):
                continue
            last = at + self.frame.window - 1
            fits = _any_known(numbers[:, self.frame.read], at, self.frame.window)
            if self.frame.horizon:
                fits &= _any_known(numbers[:, self.frame.predicted], at + self.frame.first, self.frame.horizon)
            else:
                fits &= self.rows.target(row)[last] != NO_LABEL
            found.append(np.stack((start + at * self.columns, start + size + last), axis=1)[fits])
        return np.concatenate(found)

    @property
    def lengths(self) -> Lengths:
        """To the plan of batches, each step counts as a token: (N, 2)."""
        sides = np.array([self.frame.window, self.frame.horizon], np.int32)
        return np.broadcast_to(sides, (len(self.starts), 2))

    def values(self, rows: NDArray[Any]) -> Values:
        """The numbers of some windows, (B, steps, C)."""
        places = self.starts[rows, 0][:, None] + np.arange(self.frame.steps * self.columns)
        found = self.rows.flat[places].view(np.float32).astype(np.float64)
        return np.asarray(found.reshape(len(rows), self.frame.steps, self.columns))

    def labels(self, rows: NDArray[Any]) -> NDArray[np.int64]:
        """The labels of some windows, those of their last steps, (B)."""
        return np.asarray(self.rows.flat[self.starts[rows, 1]], np.int64)


def _any_known(numbers: NDArray[Any], first: NDArray[np.int64], steps: int) -> NDArray[np.bool_]:
    """Whether something is known in each of some stretches of so many steps of numbers (T, C)."""
    known = np.concatenate(([0], np.cumsum((~np.isnan(numbers)).any(axis=1))))
    return known[first + steps] > known[first]


@dataclass(frozen=True)
class Criterion:
    """The loss of a number: squared, absolute, or of quantiles (pinball); `quantiles` has one 0.5 for the others."""

    kind: str
    quantiles: tuple[float, ...] = (0.5,)

    def __call__(self, errors: Tensor) -> Tensor:
        """The loss of errors y - ŷ, (…, Q) to (…)."""
        if self.kind == "squared":
            return errors.square().mean(dim=-1)
        if self.kind == "absolute":
            return errors.abs().mean(dim=-1)
        levels = torch.tensor(self.quantiles, device=errors.device, dtype=errors.dtype)  # (Q)
        return torch.maximum(levels * errors, (levels - 1) * errors).mean(dim=-1)


@dataclass(frozen=True)
class NumberBatch(Tensors):
    """Windows of series, and the numbers to be predicted, NaN where one is missing."""

    values: Tensor  # (B, T, C)
    numbers: Tensor  # (B, h, P)
    criterion: Criterion
    targets: int  # numbers that are known

    @property
    def tokens(self) -> int:
        """Each step that is read counts as one."""
        return self.values.shape[0] * self.values.shape[1]

    padded_tokens = tokens


def number_loss(learner: Learner, batch: NumberBatch) -> Tensor:
    """The summed loss of the numbers that are known, in units of the head's deviations."""
    head: Any = learner.head
    found = head(learner.hidden(batch.values)).float()  # (B, h * P * Q)
    known = ~batch.numbers.isnan()  # (B, h, P)
    quantiles = len(batch.criterion.quantiles)
    errors = batch.numbers.nan_to_num()[..., None] - found.view(*batch.numbers.shape, quantiles)  # (B, h, P, Q)
    errors = errors / head.deviation.view(*batch.numbers.shape[1:], quantiles)
    return (batch.criterion(errors) * known).sum()


@dataclass(frozen=True)
class NumberCollator:
    """Makes batches of windows and what follows them; `by_window`: in units of each window's level and spread."""

    pairs: Windows
    criterion: Criterion
    by_window: bool

    def __call__(self, rows: NDArray[Any], rng: np.random.Generator) -> NumberBatch:
        values, frame = self.pairs.values(rows), self.pairs.frame  # (B, steps, C)
        if self.by_window:
            level, spread = standard(values[:, : frame.window])
            values = (values - level) / spread
        history, truth = (
            torch.from_numpy(side.astype(np.float32)) for side in (frame.history(values), frame.truth(values))
        )
        return NumberBatch(history, truth, self.criterion, int((~truth.isnan()).sum()))


@dataclass(frozen=True)
class LabelBatch(Tensors):
    """Windows of series, and their labels."""

    values: Tensor  # (B, T, C)
    labels: Tensor  # (B)

    @property
    def targets(self) -> int:
        """One a window."""
        return len(self.labels)

    @property
    def tokens(self) -> int:
        """Each step counts as one."""
        return self.values.shape[0] * self.values.shape[1]

    padded_tokens = tokens


@dataclass(frozen=True)
class LabelCollator:
    """Makes batches of windows and their labels."""

    pairs: Windows
    by_window: bool

    def __call__(self, rows: NDArray[Any], rng: np.random.Generator) -> LabelBatch:
        values = self.pairs.values(rows)  # (B, T, C)
        if self.by_window:
            level, spread = standard(values)
            values = (values - level) / spread
        return LabelBatch(torch.from_numpy(values.astype(np.float32)), torch.from_numpy(self.pairs.labels(rows)))
