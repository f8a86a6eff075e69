"""Recurrent models through the whole of a run: trained, loaded, used, looked at; and what a recipe may not say."""

from pathlib import Path
from typing import Any

import pytest
import torch

import glassformer as gf
from glassformer.errors import ConfigurationError, RecipeError
from glassformer.recipe import make_recipe
from glassformer.runs import export_run
from labels import examples, table, text_recipe
from stories import stories

MODEL = {"family": "recurrent", "width": 16, "layers": 2, "dropout": 0.1}
TRAIN = {"steps": 3, "batch_tokens": 256, "validate_every": 2, "save_every": 2, "device": "cpu"}
LETTERS: dict[str, Any] = {
    "source": {"kind": "reverse", "count": 200, "length": 6},
    "tokenizer": {"kind": "word", "vocabulary": 40},
    "model": MODEL,
    "train": TRAIN,
    "data": {"max_tokens": 16},
    "decode": {"beam": 2, "max_length": 8},
}


@pytest.mark.parametrize(
    ("cell", "attention"), [("rnn", "none"), ("gru", "additive"), ("lstm", "multiplicative"), ("lstm", "none")]
)
def test_a_translator_is_trained_loaded_and_used(cell: str, attention: str, tmp_path: Path) -> None:
    model = {**MODEL, "cell": cell, "attention": attention, "bidirectional": True}
    run: Any = gf.train({**LETTERS, "model": model}, tmp_path / "run")
    loaded: Any = gf.load(tmp_path / "run")
    assert loaded.model.blueprint.arguments == run.model.blueprint.arguments
    texts = [source for source, _ in run.examples("test")[:20]]
    found = [each.text for each in run.translate(texts, beam=3)]
    assert [each.text for each in loaded.translate(texts, beam=3)] == found
    assert [loaded.translate([text], beam=3)[0].text for text in texts] == found
    assert "".join(loaded.stream(texts[0])) == loaded.translate(texts[:1], beam=1)[0].text
    assert loaded.evaluate(run.examples("test")[:20], int8=True).perplexity > 1
    seen = loaded.look(texts[0])
    assert seen.kinds == ([] if attention == "none" else ["decoder.cross"])
    assert (loaded.attention_picture(run.examples("test")) is None) == (attention == "none")
    if seen.kinds:
        axes = seen.axes("decoder.cross")
        assert seen["decoder.cross"].shape == (1, 1, len(axes["token"]), len(axes["key"]))
    with pytest.raises(ConfigurationError, match=r'^the family "recurrent" has no counterpart in transformers'):
        export_run(loaded, tmp_path / "out")


def test_training_resumes_to_the_same_weights(tmp_path: Path) -> None:
    whole = gf.train({**LETTERS, "train": {**TRAIN, "steps": 4}}, tmp_path / "whole")
    gf.train({**LETTERS, "train": {**TRAIN, "steps": 2}}, tmp_path / "part")
    gone_on = gf.train({**LETTERS, "train": {**TRAIN, "steps": 4}}, tmp_path / "part", resume=True)
    for ours, expected in zip(gone_on.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(ours, expected)


def test_one_run_is_the_beginning_of_another(tmp_path: Path) -> None:
    gf.train({**LETTERS, "model": {**MODEL, "cell": "gru"}}, tmp_path / "one")
    other = gf.train({**LETTERS, "model": {"pretrained": str(tmp_path / "one")}}, tmp_path / "other")
    assert other.model.blueprint.family == "recurrent"
    assert other.model.decoder.layers.cell.__name__ == "GRU"


def test_a_classifier_learns(tmp_path: Path) -> None:
    model = {"family": "recurrent", "cell": "gru", "bidirectional": True, "width": 16, "layers": 1, "dropout": 0.0}
    asked = text_recipe(table(tmp_path / "t.tsv", examples(300)))
    run: Any = gf.train({**asked, "model": model}, tmp_path / "run")
    assert run.evaluate(run.examples("test")).scores.accuracy > 0.95
    loaded: Any = gf.load(tmp_path / "run")
    assert [each.label for each in loaded.classify(["the old hammer", "a plum"])] == ["tool", "fruit"]


def test_a_language_model_learns_with_truncated_gradients(tmp_path: Path) -> None:
    stories(tmp_path / "plays.txt")
    asked = {
        "task": {"kind": "language-modelling"},
        "source": {"kind": "text", "train": str(tmp_path / "plays.txt")},
        "data": {"valid": 0.1, "test": 0.1, "max_tokens": 32},
        "tokenizer": {"kind": "character", "vocabulary": 60},
        "model": {**MODEL, "width": 32, "layers": 1, "dropout": 0.0, "truncate": 8},
        "train": {**TRAIN, "steps": 60, "lr": 0.02, "warmup": 5, "batch_tokens": 512},
    }
    run: Any = gf.train(asked, tmp_path / "run")
    assert run.model.decoder.truncate == 8
    loaded: Any = gf.load(tmp_path / "run")
    found = loaded.evaluate(run.examples("test"))
    assert found.perplexity < 12  # 30 letters or so, were they equally likely
    one, two = loaded.generate(["the ", "a"], length=12)
    assert loaded.generate(["the "], length=12)[0].text == one.text
    assert "".join(loaded.stream("a", length=12)) == two.text


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"model": {"cell": "gru"}}, "model.cell is not a key of the family transformer, only of recurrent, series_"),
        ({"model": {"attention": "none"}}, "model.attention is not a key of the family transformer, only of recurrent"),
        ({"model": {"bidirectional": True}}, "model.bidirectional is not a key of the family transformer, only of rec"),
        ({"model": {"truncate": 4}}, "model.truncate is not a key of the family transformer, only of recurrent"),
        ({"model": {**MODEL, "truncate": 4}}, "model.truncate has no effect in a recurrent for this task: remove it"),
        ({"train": {"truncate": 4}}, "train.truncate is not a key: "),
        ({"model": {**MODEL, "heads": 4}}, "model.heads is not a key of the family recurrent, only of .*transformer"),
        ({"model": {**MODEL, "cell": "lstn"}}, "model.cell is 'lstn': input should be 'rnn', 'gru' or 'lstm'"),
        (
            {"model": {**MODEL, "width": 7, "bidirectional": True}},
            "model: width 7 does not divide into two directions: make it even",
        ),
        ({"model": MODEL, "tokenizer": {"joint": False}}, "model.tie_source needs tokenizer.joint"),
        (
            {"task": {"kind": "language-modelling"}, "model": {**MODEL, "bidirectional": True}},
            "model.bidirectional has no effect in a recurrent for this task: remove it",
        ),
        (
            {"task": {"kind": "classification"}, "model": {**MODEL, "attention": "additive"}},
            "model.attention has no effect in a recurrent for this task: remove it",
        ),
    ],
)
def test_a_recipe_that_cannot_be_is_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(RecipeError, match=sentence):
        make_recipe({"source": {"kind": "reverse"}, **changes})


def test_a_width_that_no_heads_divide_is_fine() -> None:
    assert make_recipe({"source": {"kind": "reverse"}, "model": {**MODEL, "width": 7}}).model.width == 7
