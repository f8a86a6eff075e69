"""The bootstrap: confidence intervals of scores, and a paired test whether two systems differ.

A thousand samples of the test set are drawn with replacement, each as large as the test set; their scores vary as those
of other test sets would. All systems are scored on the same samples, so that examples that are hard for all systems
do not affect the comparison.

S samples, N examples
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassformer.errors import InputError
from glassformer.evaluation.bleu import bleu_for

SAMPLES = 1000
SEED = 12345  # the default of sacreBLEU
TOGETHER = 20_000_000  # examples of all samples that are drawn at once

Values = Sequence[float] | NDArray[Any]  # (N)
Counts = NDArray[np.int64]  # (S, N), how often each example is in each sample
Statistic = Callable[[Counts], NDArray[np.float64]]  # the score of each sample, (S); nan where it has none


def draws(count: int, samples: int = SAMPLES) -> Iterator[Counts]:
    """Samples of so many examples, drawn with replacement; as many samples at a time as fit into memory."""
    rng, size = np.random.default_rng(SEED), max(1, TOGETHER // count)
    for first in range(0, samples, size):
        number = min(size, samples - first)
        rows = rng.integers(count, size=(number, count)) + count * np.arange(number)[:, None]  # (S, N)
        yield np.bincount(rows.reshape(-1), minlength=number * count).reshape(number, count)


def ratio(values: Values, weights: Values | None = None) -> Statistic:
    """The statistic Σ values / Σ weights; by default all weights are 1."""
    value = np.asarray(values, np.float64)  # (N)
    weight = np.ones_like(value) if weights is None else np.asarray(weights, np.float64)

    def found(drawn: Counts) -> NDArray[np.float64]:
        total = drawn @ weight  # (S)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean: NDArray[np.float64] = np.where(total > 0, (drawn @ value) / total, np.nan)
        return mean

    return found


def intervals(
    statistics: Mapping[str, Statistic], count: int, samples: int = SAMPLES
) -> dict[str, tuple[float, float]]:
    """The 95 % confidence interval of each score of the same `count` examples; none of fewer than two."""
    if count < 2 or not statistics:
        return {}
    found: dict[str, list[NDArray[np.float64]]] = {name: [] for name in statistics}
    for drawn in draws(count, samples):
        for name, statistic in statistics.items():
            found[name].append(statistic(drawn))
    joined = {name: np.concatenate(values) for name, values in found.items()}
    known = {name: values[~np.isnan(values)] for name, values in joined.items()}
    ends = {name: np.percentile(values, [2.5, 97.5]) for name, values in known.items() if len(values)}
    return {name: (float(low), float(high)) for name, (low, high) in ends.items()}


@dataclass(frozen=True)
class Estimate:
    """A score, its 95 % confidence interval, and the p-value of the paired test against the first system.

    `p` is None for the first system.
    """

    value: float
    low: float
    high: float
    p: float | None


def paired_means(
    values: Sequence[Sequence[float]], weights: Sequence[Sequence[float]] | None = None, samples: int = SAMPLES
) -> list[Estimate]:
    """Estimates of each system's mean over the same N examples: Σ values / Σ weights; by default all weights are 1.

    p is the fraction of samples in which the difference from the first system deviates from the measured difference by
    at least the size of the measured difference.
    """
    table = np.asarray(values, np.float64)  # (systems, N)
    if table.ndim != 2 or not table.size:
        raise InputError("there is nothing to compare: every system needs one value for each example")
    weight = np.ones_like(table) if weights is None else np.asarray(weights, np.float64)
    measured = table.sum(axis=1) / weight.sum(axis=1)
    sums = [(drawn @ table.T, drawn @ weight.T) for drawn in draws(table.shape[1], samples)]  # (S, systems)
    spread = np.concatenate([values / np.maximum(weights, 1e-300) for values, weights in sums])  # (S, systems)
    low, high = np.percentile(spread, [2.5, 97.5], axis=0)
    return [
        Estimate(float(measured[i]), float(low[i]), float(high[i]), _p(measured, spread, i) if i else None)
        for i in range(len(table))
    ]


def _p(measured: NDArray[np.float64], spread: NDArray[np.float64], system: int) -> float:
    difference = measured[system] - measured[0]
    deviation = np.abs(spread[:, system] - spread[:, 0] - difference)
    return float((1 + (deviation >= abs(difference)).sum()) / (1 + len(spread)))


def paired_bleu(
    outputs: Sequence[Sequence[str]], references: Sequence[str], samples: int = SAMPLES
) -> tuple[list[Estimate], str]:
    """Estimates of each system's BLEU on the same references by sacreBLEU's paired bootstrap, and its signature.

    For a system with the same outputs as the first, sacreBLEU returns p = 1 / 1001, because it counts samples whose
    difference deviates by more than 0; this function returns p = 1.
    """
    from sacrebleu.significance import PairedTest

    if len(outputs) < 2 or any(len(each) != len(references) for each in outputs) or not references:
        raise InputError("there is nothing to compare: two or more systems need one output for each reference")
    systems: list[tuple[str, Sequence[str]]] = [(str(number), list(each)) for number, each in enumerate(outputs)]
    test = PairedTest(systems, {"BLEU": bleu_for([references])}, [list(references)], test_type="bs", n_samples=samples)
    signatures, scores = test()
    found = []
    for (_, own), each in zip(systems, scores["BLEU"], strict=True):
        assert not isinstance(each, str) and each.mean is not None and each.ci is not None  # noqa: S101, PT018
        low, high = max(each.mean - each.ci, 0), min(each.mean + each.ci, 100)
        p = 1.0 if each.p_value is not None and own == systems[0][1] else each.p_value
        found.append(Estimate(each.score, float(low), float(high), p))
    return found, str(signatures["BLEU"])
