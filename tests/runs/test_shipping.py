"""Models that ship: what is in the package is what its card says, and it is there without a run and a network."""

import hashlib
import json
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import glassformer as gf
from glassformer.errors import InputError
from glassformer.runs import load, train
from glassformer.runs.rounding import restored, rounded
from glassformer.runs.shipping import CARD, ship, shipped
from glassformer.tasks.translation import TextPair
from tiny import IDLE, recipe

ROOT = Path(__file__).parents[2]
FACTS = json.loads((ROOT / "benchmarks/results/en-de.json").read_text(encoding="utf-8"))
MODEL = shipped()["en-de"]


@given(st.integers(0, 2**31), st.floats(1e-20, 1e4))
def test_a_rounded_weight_is_off_by_half_a_step_at_most(seed: int, size: float) -> None:
    torch.manual_seed(seed)
    weights = {
        "a": torch.randn(5, 7) * size,
        "a.bias": torch.randn(7),
        "b.scale": torch.randn(3),
        "zero": torch.zeros(2, 3),
    }
    small = rounded(weights)
    assert small["a"].dtype == torch.int8
    found = restored(small)
    assert found.keys() == weights.keys()
    step = weights["a"].abs().amax(dim=1, keepdim=True) / 127
    assert ((found["a"] - weights["a"]).abs() <= step * 0.501).all()
    for name in ("a.bias", "b.scale", "zero"):
        assert torch.equal(found[name], weights[name])


def test_a_shipped_run_answers_as_its_original(tmp_path: Path) -> None:
    run = train(recipe(IDLE), tmp_path / "run")
    ship(run, tmp_path / "small")
    small = load(tmp_path / "small", "cpu")
    texts = ["a b c", "d"]
    assert small.loss(run.examples()) == pytest.approx(run.loss(run.examples()), rel=0.01)  # type: ignore[attr-defined]
    assert len(small.translate(texts)) == 2
    sizes = [(tmp_path / name / "model.safetensors").stat().st_size for name in ("run", "small")]
    assert sizes[1] < sizes[0] * 0.6  # the matrices of so small a model have as many scales as rows
    assert str(tmp_path) not in (tmp_path / "small" / "recipe.toml").read_text(encoding="utf-8")
    with pytest.raises(InputError, match="has no test examples"):
        small.examples()


def test_the_card_and_the_record_tell_of_the_weights_that_are_there() -> None:
    digest = hashlib.sha256((MODEL.folder / "model.safetensors").read_bytes()).hexdigest()
    card = (MODEL.folder / CARD).read_text(encoding="utf-8")
    assert digest == FACTS["sha256"]
    assert digest in card
    assert MODEL.bytes <= 16_000_000
    assert MODEL.title == "Everyday English → German"
    assert f"BLEU **{FACTS['test']['bleu']:.2f}**" in card


def test_it_translates_our_fifty_sentences_as_its_card_says() -> None:
    rows = (MODEL.folder / "check.tsv").read_text(encoding="utf-8").splitlines()
    found = gf.load("en-de", "cpu").evaluate([TextPair(*row.split("\t")) for row in rows]).facts()
    assert found["pairs"] == 50
    for score in ("bleu", "chrf"):
        assert found[score] == pytest.approx(FACTS["check"][score], abs=0.5)  # processors may break a tie differently
