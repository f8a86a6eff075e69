"""Sizes of models, and which of them gets furthest: looked up in the trainings of `benchmarks/sweep.py`.

The sweep trained every size on corpora of several numbers of examples, for several numbers of tokens, with several
rates of dropout. Between these numbers the scores are interpolated on logarithmic scales; below them the same line goes
on, down to 0; above them the scores stay.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

SWEEP = Path(__file__).with_name("sweep.json")
SIZES = {  # smallest first; of these keys a model has those that its family knows
    "tiny": {"width": 64, "heads": 4, "layers": 2, "hidden": 256},
    "small": {"width": 128, "heads": 4, "layers": 3, "hidden": 512},
    "medium": {"width": 256, "heads": 4, "layers": 3, "hidden": 1024},
    "large": {"width": 384, "heads": 6, "layers": 4, "hidden": 1536},
    "base": {"width": 512, "heads": 8, "layers": 6, "hidden": 2048},
}


@dataclass(frozen=True)
class Trained:
    """One training of the sweep."""

    size: str
    examples: int
    tokens: int
    dropout: float
    score: float


@cache
def sweep() -> tuple[Trained, ...]:
    """All trainings of the sweep."""
    return tuple(Trained(**row) for row in json.loads(SWEEP.read_text(encoding="utf-8")))


def expected(size: str, examples: int, tokens: float) -> float:
    """The score that a size comes to on so many examples with so many tokens of training."""
    best = _best(size)
    corpora = sorted({corpus for corpus, _ in best})
    scores = []
    for corpus in corpora:
        points = sorted((count, trained.score) for (each, count), trained in best.items() if each == corpus)
        scores.append(interpolated(tokens, points))
    return interpolated(examples, [*zip(corpora, scores, strict=True)])


def dropout(size: str, examples: int, tokens: float) -> float:
    """The rate of dropout that was best in the nearest training of the sweep."""

    def distance(place: tuple[int, int]) -> float:
        return abs(math.log(place[0] / examples)) + abs(math.log(place[1] / tokens))

    best = _best(size)
    return best[min(best, key=distance)].dropout


def known() -> list[str]:
    """The sizes that the sweep has tried with every number of examples, smallest first."""
    corpora = {each.examples for each in sweep()}
    return [size for size in SIZES if {each.examples for each in sweep() if each.size == size} == corpora]


def interpolated(value: float, points: Sequence[tuple[float, float]]) -> float:
    """The height at a value between points (position, height), on a logarithmic scale of positions.

    Before the first point the line of the first two goes on, but not below 0; after the last it is level.
    """
    after = max(1, bisect_right([place for place, _ in points], value))
    if after == len(points):
        return points[-1][1]
    (left, low), (right, high) = points[after - 1 : after + 1]
    part = math.log(value / left) / math.log(right / left)
    return max(0.0, low + part * (high - low))


@cache
def _best(size: str) -> dict[tuple[int, int], Trained]:
    """The best training of a size for each number of examples and tokens."""
    found: dict[tuple[int, int], Trained] = {}
    for each in sweep():
        place = each.examples, each.tokens
        if each.size == size and (place not in found or each.score > found[place].score):
            found[place] = each
    return found
