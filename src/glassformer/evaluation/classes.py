"""Scores of labels: accuracy, F1, and who is taken for whom.

    precision = right / said,  recall = right / there,  F1 = 2 precision recall / (precision + recall)

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
    """How often labels were right. `confusion[i][j]` counts the texts of label i that were said to be j, (C, C)."""

    accuracy: float
    macro_f1: float
    f1: list[float]  # of each label; 0 where it was neither there nor said
    confusion: NDArray[np.int64]


def class_scores(said: Sequence[int], right: Sequence[int], classes: int) -> ClassScores:
    """Compare labels, by number, with the right ones. Macro F1 is the mean over the labels that are there or said."""
    if len(said) != len(right):
        raise InputError(f"there are {len(said)} answers but {len(right)} labels")
    if not len(said):
        raise InputError("there is nothing to score: no text and no label")
    confusion = np.zeros((classes, classes), np.int64)
    np.add.at(confusion, (np.asarray(right), np.asarray(said)), 1)
    hits, both = confusion.diagonal(), confusion.sum(axis=0) + confusion.sum(axis=1)
    f1 = 2 * hits / np.maximum(both, 1)
    return ClassScores(float(hits.sum() / len(said)), float(f1[both > 0].mean()), f1.tolist(), confusion)
