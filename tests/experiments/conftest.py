"""Each experiment runs once, at a size that a test can wait for, and everybody looks at the same finding."""

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from glassformer.experiments import EXPERIMENTS, Finding

# What is less than an experiment's own sizes; those that are not named are quick as they are.
SMALL: dict[str, dict[str, Any]] = {
    "gradient-flow": {"steps": 120, "length": 61, "count": 16},
    "static-vs-contextual": {"sentences": 1000, "count": 20},
    "long-memory": {"steps": 200, "distances": (12,)},
    "bottleneck": {"steps": 400, "lengths": (4, 14), "count": 30},
    "parallel-speed": {"lengths": (16, 128), "repeats": 5},
    "dot-product-variance": {"queries": 500},
    "order-blind": {"steps": 100},
    "positions": {"steps": 120, "length": 12, "vocabulary": 8},
    "residual-and-norm": {"steps": 80, "depths": (1, 6), "gains": (2.0,), "new": 100},
    "teacher-forcing": {"lengths": (8, 32)},
    "greedy-vs-beam": {"steps": 300, "count": 50, "widths": (1, 2, 8)},
    "lora": {"first": 200, "steps": 120, "ranks": (1, 16)},
    "heads": {"steps": 300, "count": 60},
    "causal-mask": {"steps": 210, "count": 50},
    "batch-vs-layer-norm": {"steps": 150, "batches": (1, 8), "new": 32},
}


@pytest.fixture(scope="session")
def found() -> Callable[[str], Finding]:
    """The finding of an experiment, by its name."""
    return cache(lambda name: EXPERIMENTS[name].run(seed=1, **SMALL.get(name, {})))
