"""The loss of training examples that is logged beside that of validation: measured alike, so that they compare."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from glassformer.evaluation import drawn
from glassformer.runs import train
from glassformer.runs.building import prepare_corpus
from glassformer.runs.metrics import read_metrics
from glassformer.tasks.translation import Translator
from tiny import IDLE, recipe

SMOOTH: dict[str, dict[str, Any]] = {"model": {"dropout": 0.4}, "train": {"smoothing": 0.3, "consistency": 2.0}}
PIECES: dict[str, dict[str, Any]] = {
    "source": {"kind": "dates", "count": 300},
    "tokenizer": {"kind": "bpe", "vocabulary": 300, "dropout": 0.5},
}


@pytest.mark.parametrize("changes", [{}, PIECES])
def test_it_is_the_loss_of_training_pairs_without_dropout_and_smoothing(
    tmp_path: Path, changes: dict[str, dict[str, Any]]
) -> None:
    made = recipe(IDLE, SMOOTH, changes)
    run = train(made, tmp_path / "run")
    assert isinstance(run, Translator)
    corpus = prepare_corpus(made)
    rows, (source, target) = corpus.splits["train"], corpus.assets.tokenizers
    some = drawn(range(len(rows)), len(corpus.splits["valid"]))
    pairs = [(source.decode(rows.source(row)), target.decode(rows.target(row))) for row in some]
    assert read_metrics(tmp_path / "run")[-1]["train_loss"] == pytest.approx(run.loss(pairs), rel=1e-4)


def test_measuring_it_changes_nothing_of_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = recipe(IDLE, SMOOTH)
    with_loss = train(made, tmp_path / "with")
    monkeypatch.setattr("glassformer.runs.training._training_loss", lambda *given: None)
    without = train(made, tmp_path / "without")
    assert "train_loss" not in read_metrics(tmp_path / "without")[-1]
    for one, other in zip(with_loss.model.parameters(), without.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_model_that_learns_by_heart_shows_it(tmp_path: Path) -> None:
    small: dict[str, dict[str, Any]] = {
        "source": {"count": 60},
        "train": {"steps": 120, "validate_every": 60, "smoothing": 0.1},
    }
    train(recipe(small), tmp_path / "run")
    validations = [each for each in read_metrics(tmp_path / "run") if "valid_loss" in each]
    assert validations[-1]["train_loss"] < 0.7 * validations[-1]["valid_loss"]
    assert np.isfinite([each["train_loss"] for each in validations]).all()
