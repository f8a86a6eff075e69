"""Training must teach: from any seed, what was never seen in training is done right."""

import random
from pathlib import Path
from typing import Any

import pytest

import glassformer as gf
from glassformer.runs import train
from glassformer.tasks.translation import Translator
from tiny import recipe


@pytest.mark.learning
@pytest.mark.parametrize(
    ("kind", "training"), [("copy", {"steps": 400}), ("reverse", {"steps": 700})], ids=["copy", "reverse"]
)
def test_letters_are_copied_and_reversed(tmp_path: Path, kind: str, training: dict[str, Any]) -> None:
    seed = random.randrange(2**31)
    print(f"seed {seed}")  # noqa: T201
    source = {"kind": kind, "count": 3000, "symbols": 8, "length": 5, "seed": seed}
    made = recipe({"source": source, "train": {**training, "seed": seed, "validate_every": 10_000}})
    run = train(made, tmp_path / "run")
    assert isinstance(run, Translator)
    scores = run.evaluate(run.examples("test")).scores
    assert scores.exact >= 0.98, f"{scores.exact:.1%} with the seed {seed}"


@pytest.mark.learning
def test_dates_are_understood_on_days_never_seen(tmp_path: Path) -> None:
    seed = random.randrange(2**31)
    print(f"seed {seed}")  # noqa: T201
    run = gf.train("dates", tmp_path / "run", changes=[f"train.seed={seed}", "train.validate_every=10000"])
    assert isinstance(run, Translator)
    scores = run.evaluate(run.examples("test")).scores
    assert scores.exact >= 0.995, f"{scores.exact:.1%} with the seed {seed}"
    assert run.translate(["सोमवार, 5 अगस्त 2013", "5 May 2031"])[0].text == "2013-08-05"
