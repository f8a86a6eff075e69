"""Entropy, distance, rollout: worked by hand.

H heads, T tokens, S keys
"""

from __future__ import annotations

import math
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import glassformer as gf
from glassformer.errors import InputError
from looking.families import FAMILIES, same, translator

from .making import made

analyses = gf.analyses
TWO = {"encoder.0.self.weights": [[[0.5, 0.5], [1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]]]}


def test_entropy_by_hand() -> None:
    found = analyses.entropy(made(TWO, {"encoder": ["a", "b"]}), "encoder.self")
    assert found.values.tolist() == [[0.5, 0.0]]  # head 0: 1 bit and 0 bits
    assert found.by_token is not None
    assert found.by_token.tolist() == [[[1.0, 0.0], [0.0, 0.0]]]
    assert (found.points, found.heads, found.tokens) == (["encoder.0.self.weights"], [0, 1], ["a", "b"])
    assert found.highest == ("encoder.0.self.weights", 0)
    assert found.lowest == ("encoder.0.self.weights", 1)
    assert found.of("encoder.0.self", 0) == 0.5


def test_distance_by_hand() -> None:
    weights = [[[1.0, 0, 0], [0.5, 0.5, 0], [0.25, 0.25, 0.5]]]
    found = analyses.distance(made({"decoder.0.self.weights": weights}), "decoder.self")
    assert found.by_token is not None
    assert found.by_token[0, 0].tolist() == [0, 0.5, 0.75]
    assert float(found.values) == pytest.approx(1.25 / 3)


@given(st.integers(1, 9), st.integers(0, 99))
def test_entropy_is_between_none_and_that_of_even_weights(keys: int, seed: int) -> None:
    weights = torch.randn(3, 4, keys, generator=torch.Generator().manual_seed(seed)).mul(5).softmax(dim=-1)
    found = analyses.entropy(made({"decoder.0.cross.weights": weights}), "decoder.cross").values
    assert bool(((found > -1e-6) & (found <= math.log2(keys) + 1e-5)).all())


def test_rows_that_were_filled_up_do_not_count() -> None:
    found = analyses.entropy(made({"decoder.0.self.weights": [[[0.5, 0.5], [0.0, 0.0]]]}), "decoder.self")
    assert found.values.tolist() == [[1.0]]


def test_rollout_by_hand() -> None:
    weights = {
        "encoder.0.self.weights": [[[0.0, 1.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]]],  # the mean: .5 .5 / 0 1
        "encoder.1.self.weights": [[[0.0, 1.0], [1.0, 0.0]], [[0.0, 1.0], [1.0, 0.0]]],
    }
    found = analyses.rollout(made(weights, {"encoder": ["a", "b"]}), "encoder.self")
    # (I + A0) / 2 = [.75 .25; 0 1], (I + A1) / 2 = [.5 .5; .5 .5]
    assert found.values.tolist() == [[0.375, 0.625], [0.375, 0.625]]
    assert (found.rows, found.columns, found.prefix) == (["a", "b"], ["a", "b"], None)
    assert analyses.rollout(made(weights), "encoder.self", residual=0).values.tolist() == [[0, 1], [0.5, 0.5]]


def test_rollout_through_cross_attention_by_hand() -> None:
    weights = {
        "encoder.0.self.weights": [[[0.0, 1.0], [0.0, 1.0]]],
        "decoder.0.self.weights": [[[1.0, 0.0], [1.0, 0.0]]],
        "decoder.0.cross.weights": [[[1.0, 0.0], [0.0, 1.0]]],
    }
    names = {"encoder": ["x", "y"], "decoder": ["start", "u"], "written": ["u", "v"]}
    found = analyses.rollout(made(weights, names), "decoder.cross")
    # E = [.5 .5; 0 1]; P = [1 0; .5 .5] / 2; C = A_cross E / 2
    assert found.values.tolist() == [[0.25, 0.25], [0, 0.5]]
    assert found.prefix is not None
    assert found.prefix.tolist() == [[0.5, 0], [0.25, 0.25]]
    assert (found.rows, found.columns, found.prefix_columns) == (["u", "v"], ["x", "y"], ["start", "u"])


@pytest.mark.parametrize("residual", [0.0, 0.3, 0.5, 0.9])
def test_all_that_a_token_holds_was_read_somewhere(residual: float) -> None:
    model = translator()
    with gf.record(model, keep="weights") as trace:
        model(*FAMILIES["transformer"].inputs)
    found = analyses.rollout(trace, "decoder.cross", residual=residual)
    assert found.prefix is not None
    same(found.values.sum(dim=1) + found.prefix.sum(dim=1), torch.ones(4))
    assert bool((found.prefix.triu(1) == 0).all())
    second = analyses.rollout(trace, "encoder.self", 1, residual).values
    same(second.sum(dim=1), torch.ones(5))
    assert bool((second[:3, 3:] == 0).all())  # padding gives nothing


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda t: analyses.entropy(t, "decoder.cross"),
            "entropy needs the weights of decoder.cross: the trace holds encoder.self; record a model that has this",
        ),
        (lambda t: analyses.entropy(t, "encoder.self", 3), "there is no sentence 3: the trace has 1"),
        (lambda t: analyses.distance(t, "decoder.cross"), "decoder.cross looks from one text into another, where"),
        (lambda t: analyses.rollout(t, "encoder.self", residual=1), "the share of the residual connection is from 0"),
        (lambda t: analyses.rollout(t, "decoder.cross"), "rollout needs the weights of decoder.cross: the trace holds"),
    ],
)
def test_what_a_trace_lacks_is_said(call: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=f"^{sentence}"):
        call(made(TWO))


def test_a_model_without_attention_is_said() -> None:
    model = FAMILIES["gru-next"].model()
    with gf.record(model) as trace:
        model(*FAMILIES["gru-next"].inputs)
    with pytest.raises(InputError, match=r"^entropy needs the weights of decoder.self: the trace holds no attention; "):
        analyses.entropy(trace, "decoder.self")


def test_rollout_needs_all_layers_and_heads() -> None:
    with pytest.raises(InputError, match=r"^rollout needs encoder.self in every layer from 0 on: record it without "):
        analyses.rollout(made({"encoder.1.self.weights": [[[1.0]]]}), "encoder.self")
    with pytest.raises(InputError, match=r"^rollout needs all heads, and the trace holds some of encoder.0.self.weigh"):
        analyses.rollout(made({"encoder.0.self.weights": [[[1.0]]]}, heads=[2]), "encoder.self")


def test_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=lambda values, **facts: (values, facts)))
    trace = made(TWO, {"encoder": ["a", "b"]})
    values, facts = analyses.entropy(trace, "encoder.self").pandas()
    assert values.tolist() == [[0.5, 0.0]]
    assert facts == {"index": ["encoder.0.self.weights"], "columns": [0, 1]}
    assert analyses.rollout(trace, "encoder.self").pandas()[1] == {"index": ["a", "b"], "columns": ["a", "b"]}
