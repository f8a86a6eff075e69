"""Rank correlation: whether one list of numbers rises where another does.

N pairs of numbers
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from glassformer.evaluation.bootstrap import Counts, Statistic, Values


def spearman(one: Values, two: Values) -> float:
    """Spearman's rank correlation, from -1 to 1: Pearson's, of ranks; 0 where all numbers of a list are equal."""
    first, second = _ranks(one), _ranks(two)
    first, second = first - first.mean(), second - second.mean()
    size = float(np.sqrt((first**2).sum() * (second**2).sum()))
    return float((first * second).sum()) / size if size else 0.0


def spearman_statistic(one: Values, two: Values) -> Statistic:
    """The same of samples of the pairs."""
    first, second, rows = np.asarray(one), np.asarray(two), np.arange(len(one))

    def found(drawn: Counts) -> NDArray[np.float64]:
        samples = (np.repeat(rows, counts) for counts in drawn)
        return np.array([spearman(first[sample], second[sample]) for sample in samples])

    return found


def _ranks(values: Values) -> NDArray[np.float64]:
    """The rank of each number, (N); equal numbers share the mean of their ranks."""
    _, place, counts = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
    ranks: NDArray[np.float64] = (np.cumsum(counts) - (counts - 1) / 2)[place.reshape(-1)]
    return ranks
