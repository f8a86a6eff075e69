"""Choosing: which examples stand for all of them. Files are often sorted, so the first ones never do."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

SEED = 0  # the same examples are chosen in every run


def drawn(examples: Sequence[Any], most: int, key: Callable[[Any], Hashable] | None = None) -> list[Any]:
    """At most so many of the examples, drawn at random over all of them, in their order.

    Examples with the same key are drawn together, so that no source loses a reference.
    """
    rng, rows = np.random.default_rng(SEED), list[int]()
    if len(examples) <= most:
        return list(examples)
    if key is None:
        return [examples[row] for row in sorted(rng.choice(len(examples), most, replace=False).tolist())]
    groups: dict[Hashable, list[int]] = {}
    for row, example in enumerate(examples):
        groups.setdefault(key(example), []).append(row)
    order = list(groups.values())
    for number in rng.permutation(len(order)).tolist():
        if not rows or len(rows) + len(order[number]) <= most:
            rows += order[number]
    return [examples[row] for row in sorted(rows)]


def spread(keys: Sequence[Hashable], lengths: Sequence[int], most: int) -> list[int]:
    """Rows of at most so many examples with different keys, of all lengths, the shortest first."""
    different = list({key: row for row, key in reversed([*enumerate(keys)])}.values())
    rows = sorted(different, key=lambda row: (lengths[row], row))
    places = np.linspace(0, len(rows) - 1, min(most, len(rows))).round().astype(int).tolist()
    return [rows[place] for place in places]
