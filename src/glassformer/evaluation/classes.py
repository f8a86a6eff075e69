"""Scores of predicted labels: accuracy, F1 and the confusion matrix.

    precision = correct / predicted,  recall = correct / true,  F1 = 2 precision recall / (precision + recall)

C classes, N examples, P predictions, S samples
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from glassformer.errors import InputError
from glassformer.evaluation.bootstrap import Counts, Statistic, ratio


@dataclass(frozen=True)
class ClassScores:
    """Scores of a classifier. `confusion[i][j]` counts the texts with true label i and predicted label j, (C, C)."""

    accuracy: float
    macro_f1: float
    f1: list[float]  # of each label; 0 if it is neither a true nor a predicted label
    confusion: NDArray[np.int64]


def class_scores(predicted: Sequence[int], true: Sequence[int], classes: int) -> ClassScores:
    """Compare predicted with true labels (numbers). Macro F1 is the mean over the labels that occur in either."""
    if len(predicted) != len(true):
        raise InputError(f"there are {len(predicted)} predicted labels but {len(true)} true labels")
    if not len(predicted):
        raise InputError("there is nothing to score: no labels")
    confusion = np.zeros((classes, classes), np.int64)
    np.add.at(confusion, (np.asarray(true), np.asarray(predicted)), 1)
    hits, both = confusion.diagonal(), confusion.sum(axis=0) + confusion.sum(axis=1)
    f1 = 2 * hits / np.maximum(both, 1)
    return ClassScores(float(hits.sum() / len(predicted)), float(f1[both > 0].mean()), f1.tolist(), confusion)


@dataclass(frozen=True)
class Predictions:
    """Labels that were predicted: one for each example, or one for each word of it."""

    predicted: NDArray[np.int64]  # (P)
    true: NDArray[np.int64]  # (P)
    nats: NDArray[np.float64]  # (P), -log p of the true labels
    example: NDArray[np.int64]  # (P), the number of the example that each is of
    classes: int

    @cached_property
    def scores(self) -> ClassScores:
        """The scores of all of them."""
        return class_scores(self.predicted.tolist(), self.true.tolist(), self.classes)

    @property
    def loss(self) -> float:
        """The mean of -log p of the true labels."""
        return float(self.nats.mean())

    @property
    def examples(self) -> int:
        """How many examples they are of."""
        return int(self.example.max(initial=-1)) + 1

    def statistics(self) -> dict[str, Statistic]:
        """The loss, the accuracy and the macro F1 of samples of the examples."""
        nats, right, count = (
            np.bincount(self.example, values)  # (N)
            for values in (self.nats, self.predicted == self.true, np.ones_like(self.nats))
        )
        return {"loss": ratio(nats, count), "accuracy": ratio(right, count), "macro_f1": self._macro_f1}

    def _macro_f1(self, drawn: Counts) -> NDArray[np.float64]:
        found = []
        for counts in drawn:
            weights = counts[self.example].astype(float)  # (P)
            of_true = np.bincount(self.true, weights, self.classes)  # (C)
            of_both = of_true + np.bincount(self.predicted, weights, self.classes)
            hits = np.bincount(self.true, weights * (self.predicted == self.true), self.classes)
            found.append(float((2 * hits / np.maximum(of_both, 1))[of_both > 0].mean()))
        return np.array(found)
