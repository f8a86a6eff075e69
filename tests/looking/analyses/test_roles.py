"""Roles of heads: scores worked by hand, and heads that are made to have a role.

T tokens
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

import glassformer as gf
from glassformer.errors import InputError
from looking.families import FAMILIES

from .making import made

analyses = gf.analyses
WEIGHTS = [[[1.0, 0.0, 0.0], [0.5, 0.25, 0.25], [0.25, 0.5, 0.25]]]
TRACE = made({"encoder.tokens": [7, 8, 7], "encoder.0.self.weights": WEIGHTS}, {"encoder": ["a", "b", "a"]})


@pytest.mark.parametrize(
    ("role", "score"),
    [
        ("previous", (0.5 + 0.5) / 2),
        ("next", (0 + 0.25) / 2),
        ("same", (1 + 0.25 + 0.25) / 3),
        ("duplicate", (0 + 0.25) / 2),  # the first and the last token are the same
        ("first", (1 + 0.5 + 0.25) / 3),
        ("end", (0 + 0.25 + 0.25) / 3),
    ],
)
def test_roles_by_hand(role: str, score: float) -> None:
    found = analyses.roles(TRACE, "encoder.self")
    assert float(found.of(role).values) == pytest.approx(score)
    assert (found.points, found.heads) == (["encoder.0.self.weights"], [0])


def test_words_that_are_spelled_alike_are_duplicates_too() -> None:
    trace = made({"encoder.0.self.weights": WEIGHTS}, {"encoder": ["a", "b", "a"]})
    assert torch.equal(analyses.roles(trace, "encoder.self").values, analyses.roles(TRACE, "encoder.self").values)


def test_cross_attention_has_a_first_and_a_last_place() -> None:
    found = analyses.roles(made({"decoder.0.cross.weights": [[[0.25, 0.75], [0.5, 0.5]]]}), "decoder.cross")
    assert found.roles == ["first", "end"]
    assert found.of("end").values.tolist() == [[0.625]]


def test_an_induction_head_is_found() -> None:
    model = FAMILIES["gpt2"].model()
    plain = analyses.induction(model, length=6)
    assert plain.values.shape == (2, 4)
    with gf.intervene(model) as edit:
        for place in range(6, 12):
            edit.attend("decoder.1.self", query=place, key=place - 6 + 1, heads=2)
        found = analyses.induction(model, length=6)
    assert found.highest == ("decoder.1.self.weights", 2)
    assert found.of("decoder.1.self", 2) == pytest.approx(1)
    assert torch.equal(found.values[0], plain.values[0])


def test_induction_is_the_mean_weight_on_what_followed() -> None:
    model = FAMILIES["llama"].model()
    with gf.intervene(model) as edit:
        edit.mean("decoder.*.self.weights")  # a token that sees n tokens gives each 1/n
        found = analyses.induction(model, length=3, sentences=1)
    assert found.values.flatten().tolist() == pytest.approx([(1 / 4 + 1 / 5 + 1 / 6) / 3] * 8)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: analyses.roles(TRACE, "encoder.self").of("boss"), 'there is no role "boss": there are previous, next'),
        (lambda: analyses.roles(TRACE, "decoder.self"), "roles needs the weights of decoder.self: the trace holds enc"),
        (lambda: analyses.induction(FAMILIES["bert"].model()), "induction is measured on a language model with attent"),
        (lambda: analyses.induction(FAMILIES["gru-next"].model()), "induction is measured on a language model with at"),
        (lambda: analyses.induction(FAMILIES["gpt2"].model(), 1), "induction needs 2 tokens and 1 sentence at least"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(call: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=f"^{sentence}"):
        call()
