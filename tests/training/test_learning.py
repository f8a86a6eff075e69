"""Training must teach: a small model copies sentences it has never seen, whatever the seed."""

import random
from pathlib import Path
from typing import Any

import pytest

from glassformer.decoding import Limits, greedy
from glassformer.models import transformer
from glassformer.parts import pad
from glassformer.tasks.translation import translation_loss
from glassformer.training import Trainer

from .helpers import END, FIRST, PAD, START, VOCABULARY, FakeBatches, options


@pytest.mark.learning
@pytest.mark.parametrize(
    "changes",
    [
        {"optimiser": "adamw", "lr": 3e-3, "steps": 400, "schedule": "linear"},
        {"optimiser": "muon", "lr": 3e-3, "steps": 250, "schedule": "linear", "ema": 0.9},
    ],
    ids=["adamw", "muon"],
)
def test_copying_is_learned_from_any_seed(tmp_path: Path, changes: dict[str, Any]) -> None:
    seed = random.randrange(2**31)
    batches = FakeBatches(seed, count=400, size=48, length=8)
    model = transformer(VOCABULARY, width=48, heads=4, layers=2, hidden=96, dropout=0.0)
    wish = options(warmup=50, save_every=1000, seed=seed, **changes)
    Trainer(model, batches, wish, tmp_path, translation_loss).run()
    draw = random.Random(seed + 1)
    fresh = [[draw.randrange(FIRST, VOCABULARY) for _ in range(draw.randint(3, 8))] for _ in range(400)]
    outputs = greedy(model, *pad(fresh, PAD), limits=Limits(START, END, max_length=12))
    right = sum(output.tokens == sentence for output, sentence in zip(outputs, fresh, strict=True))
    assert right >= 0.99 * len(fresh), f"{right} of {len(fresh)} with the seed {seed}"
