"""Each experiment runs once, at a size that a test can wait for, and everybody looks at the same finding."""

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from glassformer.experiments import EXPERIMENTS, Finding

# A few steps of everything: what is measured without training is right, what is trained has learned nothing.
SMALL: dict[str, dict[str, Any]] = {
    "across-modalities": {"steps": 3, "pool": 40, "count": 10},
    "batch-vs-layer-norm": {"steps": 3, "batches": (1, 4), "new": 8},
    "beam-fluency": {"widths": (1, 2), "chosen": 2, "count": 2},
    "binary-counting": {"steps": 3},
    "bottleneck": {"steps": 3, "lengths": (4, 8), "count": 4},
    "causal-mask": {"steps": 3, "count": 8},
    "deep-rnn": {"steps": 3},
    "dot-product-variance": {"queries": 500},
    "feed-forward": {"steps": 3},
    "free-attention": {"steps": 3},
    "gradient-flow": {"steps": 3, "length": 61, "count": 16},
    "greedy-vs-beam": {"steps": 3, "count": 4, "widths": (1, 2, 4)},
    "heads": {"steps": 3, "count": 8},
    "long-memory": {"steps": 3, "distances": (3, 6)},
    "lora": {"first": 3, "steps": 3, "ranks": (1, 2)},
    "one-hot": {"sentences": 400},
    "order-blind": {"steps": 3},
    "parallel-speed": {"lengths": (16, 64), "rounds": 2},
    "positions": {"steps": 3, "length": 6, "vocabulary": 6},
    "residual-and-norm": {"steps": 3, "depths": (1, 4), "gains": (3.0,), "new": 20},
    "skip-layers": {"steps": 3, "layers": 2},
    "stacked-layers": {"steps": 3, "count": 8},
    "static-vs-contextual": {"steps": 3, "sentences": 500, "count": 5},
    "teacher-forcing": {"lengths": (8, 32)},
    "three-shapes": {"steps": 3, "count": 8},
    "transfer": {"first": 3, "steps": 3, "count": 20},
    "two-readings": {"steps": 3},
    "undo-layer-norm": {"steps": 3, "judged": 3},
    "unseen-lengths": {"steps": 3, "length": 4},
    "vit": {"steps": 3, "pool": 40, "count": 10},
}


@pytest.fixture(scope="session")
def found() -> Callable[[str], Finding]:
    """The finding of an experiment, by its name."""
    return cache(lambda name: EXPERIMENTS[name].run(seed=1, **SMALL.get(name, {})))
