"""Judging: what a run scores on each held-out example, so that runs can be compared example by example."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from glassformer.evaluation.bootstrap import Estimate, paired_bleu, paired_means
from glassformer.evaluation.metrics import score

BLEU, ACCURACY = "BLEU", "accuracy (%)"
GROUPS = 5  # of lengths, each with about as many examples
FEWEST = 20  # examples in a group


@dataclass(frozen=True)
class Judged:
    """What a run scores on some examples: the value and weight of each, or the outputs and references of BLEU."""

    score: str  # its name
    better: str  # higher or lower
    values: list[float] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    references: list[str] = field(default_factory=list)

    def value(self, rows: Sequence[int]) -> float:
        """The score on some of the examples."""
        if self.outputs:
            return score([self.outputs[row] for row in rows], [self.references[row] for row in rows]).bleu
        return sum(self.values[row] for row in rows) / max(sum(self.weights[row] for row in rows), 1e-300)


def accuracy(hits: Sequence[float], weights: Sequence[float] | None = None) -> Judged:
    """The percentage of correct predictions: how many of each example's, of how many (1, unless said)."""
    counts = [1.0] * len(hits) if weights is None else list(weights)
    return Judged(ACCURACY, "higher", [100.0 * hit for hit in hits], counts)


def estimates(judged: Sequence[Judged]) -> tuple[list[Estimate], str]:
    """The scores of some runs on the same examples, the others tested against the first; and a signature."""
    if judged[0].outputs:
        return paired_bleu([each.outputs for each in judged], judged[0].references)
    return paired_means([each.values for each in judged], [each.weights for each in judged]), ""


def by_length(lengths: Sequence[int]) -> dict[str, list[int]]:
    """Rows of examples grouped by their length in words, such as "4 to 7", shortest first."""
    if not lengths:
        return {}
    groups = max(1, min(GROUPS, len(lengths) // FEWEST))
    values = np.array(lengths)
    edges = np.unique(np.quantile(values, np.linspace(0, 1, groups + 1), method="lower"))
    found: dict[str, list[int]] = {}
    for number, least in enumerate(edges[:-1] if len(edges) > 1 else edges):
        last = number >= len(edges) - 2
        most = int(edges[-1]) if last else int(edges[number + 1]) - 1
        name = f"{least}" if least == most else f"{least} to {most}"
        found[name] = np.flatnonzero((values >= least) & (values <= most)).tolist()
    return found
