"""Scores of predicted labels: accuracy, F1 and the confusion matrix.

    precision = correct / predicted,  recall = correct / true,  F1 = 2 precision recall / (precision + recall)

C classes
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from glassformer.errors import InputError


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
