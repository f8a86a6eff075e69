"""Patching: effects are where they must be, worked by hand and on the model that ships.

T tokens, V vocabulary
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import glassformer as gf
from glassformer.errors import InputError
from glassformer.looking.patching import Forced, preference

from .families import FAMILIES

CLEAN, CORRUPT = [3, 4, 5, 6], [3, 9, 5, 6]


class Reader:
    """A run that reads numbers."""

    def __init__(self, name: str) -> None:
        self.model: Any = FAMILIES[name].model()

    def forced(self, text: Any, written: Sequence[int] | None = None) -> Forced:
        stack = "decoder" if hasattr(self.model, "decoder") else "encoder"
        return Forced((torch.tensor([text]),), {stack: [[str(token) for token in text]]}, {})


def last(logits: Tensor) -> Tensor:
    """A score of the last token, from (T, V)."""
    return logits[-1, 7] - logits[-1, 8]


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert", "gru-next", "rnn-tags"])
def test_effects_over_positions(name: str) -> None:
    run = Reader(name)
    found = gf.patching(run, CLEAN, CORRUPT, (lambda x: x[-1, 0] - x[-1, 1]) if name == "rnn-tags" else last)
    assert found.labels == ["3", "4/9", "5", "6"]
    assert found.points == [
        f"{'en' if name in ('bert', 'rnn-tags') else 'de'}coder.{layer}."
        + ("state" if name in ("gru-next", "rnn-tags") else "after")
        for layer in (0, 1)
    ]
    assert found.effects.shape == (2, 4)
    if name in ("gpt2", "llama"):
        assert (found.effects[:, 0] == 0).all()  # before the difference, nothing is different
        assert found.effects[1].tolist() == pytest.approx([0, 0, 0, 1], abs=1e-4)  # the last token says it all


def test_an_effect_is_what_a_patch_by_hand_gives() -> None:
    run = Reader("gpt2")
    found = gf.patching(run, CLEAN, CORRUPT, last)
    model = run.model
    with torch.no_grad():
        with gf.record(model) as trace:
            clean = last(model(torch.tensor([CLEAN]))[0])
        corrupt = last(model(torch.tensor([CORRUPT]))[0])
        with gf.intervene(model) as edit:
            edit.patch("decoder.0.after", trace, positions=1)
            patched = last(model(torch.tensor([CORRUPT]))[0])
    assert [found.clean, found.corrupt] == pytest.approx([float(clean), float(corrupt)])
    assert float(found.effects[0, 1]) == pytest.approx(float((patched - corrupt) / (clean - corrupt)), abs=1e-5)


def test_logits_are_patched_where_they_are_measured() -> None:
    found = gf.patching(Reader("gpt2"), CLEAN, CORRUPT, last, points="logits")
    assert found.labels == gf.patching(Reader("gpt2"), CLEAN, CORRUPT, last).labels
    assert found.effects.tolist() == [[0, 0, 0, 1]]


def test_effects_over_heads() -> None:
    run = Reader("gpt2")
    found = gf.patching(run, CLEAN, CORRUPT, last, over="heads")
    assert (found.points, found.labels) == (["decoder.0.self.heads", "decoder.1.self.heads"], ["0", "1", "2", "3"])
    assert found.effects.shape == (2, 4)
    point, head = found.best
    assert found.effects.max() == found.effects[found.points.index(point), head]
    assert found.effects.abs().max() > 0


def test_the_same_text_twice_has_no_effect_to_divide_by() -> None:
    with pytest.raises(
        InputError, match=r"^the metric is the same for both texts: choose texts or a metric that differ$"
    ):
        gf.patching(Reader("gpt2"), CLEAN, CLEAN, last)


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("gpt2", {"corrupt": [3, 4]}, "the clean text has 4 tokens and the corrupt one 2: choose texts of the same"),
        ("gpt2", {"over": "layers"}, 'patching goes over "positions" or "heads", not \'layers\''),
        ("gpt2", {"corrupt": [3, 4], "over": "heads"}, "the clean text has 4 tokens and the corrupt one 2: choose te"),
        ("gpt2", {"metric": lambda x: float("nan")}, "the metric is nan: expected a finite number"),
        ("gpt2", {"metric": lambda x: x[-1]}, r"the metric gave a tensor \(23,\): expected one number for the logits"),
        (
            "gpt2",
            {"metric": lambda x: None},
            "the metric gave a NoneType: expected one number for the logits of a text",
        ),
        (
            "gpt2",
            {"points": "decoder.*.after", "over": "heads"},
            "decoder.0.self.after has no heads: choose other points",
        ),
        ("gru-next", {"over": "heads"}, "this model has no attention, so it has no heads to patch: go over positions"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(name: str, options: dict[str, Any], sentence: str) -> None:
    given: dict[str, Any] = {"clean": CLEAN, "corrupt": CORRUPT, "metric": last} | options
    with pytest.raises(InputError, match=f"^{sentence}"):
        gf.patching(Reader(name), **given)


def test_effects_as_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    found = gf.patching(Reader("gpt2"), CLEAN, CORRUPT, last)
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=lambda values, **facts: (values, facts)))
    values, facts = found.pandas()
    assert values.shape == (2, 4)
    assert facts == {"index": found.points, "columns": found.labels}


def test_a_translator_carries_the_difference_at_the_word_that_differs() -> None:
    run: Any = gf.load("en-de")
    wanted = [*run.forced("The man is old.").written, run.special.end]

    def metric(logits: Tensor) -> Tensor:
        return logits.log_softmax(-1)[torch.arange(len(wanted)), wanted].sum()

    found = gf.patching(run, "The man is old.", "The girl is old.", metric)
    assert found.labels == ["The", "▁man/▁girl", "▁is", "▁old", "."]
    assert len(found.points) == run.recipe.model.layers
    assert (found.effects.argmax(dim=1) == 1).all()
    assert found.clean > found.corrupt


def test_an_output_that_was_cut_is_patched_in_the_decoder_too() -> None:
    run: Any = gf.load("en-de")
    decode = run.recipe.decode.model_copy(update={"max_length": 2})
    run.recipe = run.recipe.model_copy(update={"decode": decode})
    found = gf.patching(run, "A man.", "A girl.", lambda x: x[0].log_softmax(-1)[9], points="decoder.*.cross.output")
    assert found.labels == ["start", "Ein", "▁Mann"]


def test_preference_is_a_log_probability_or_a_difference_of_scores() -> None:
    logits = torch.tensor([[0.0, 1.0, 3.0], [2.0, 0.0, 0.0]])
    assert float(preference(2, 0)(logits)) == pytest.approx(float(logits[0].log_softmax(-1)[2]))
    assert float(preference(2, 0, against=1)(logits)) == 2.0
    assert float(preference(0)(logits[1])) == pytest.approx(float(logits[1].log_softmax(-1)[0]))  # of a whole text
