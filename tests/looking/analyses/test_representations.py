"""Representations: components, neighbours and likeness, worked by hand.

N tokens, D width
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
from looking.families import FAMILIES, SOURCE, same

from .making import made

analyses = gf.analyses


def vectors(*rows: list[list[float]], name: str = "encoder.0.after") -> list[Any]:
    texts = [[f"{number}{at}" for at in range(len(row))] for number, row in enumerate(rows)]
    return [made({name: row}, {"encoder": text}) for row, text in zip(rows, texts, strict=True)]


def test_components_by_hand() -> None:
    traces = vectors([[1.0, 2.0], [3.0, 2.0]], [[2.0, 2.5], [2.0, 1.5]])
    found = analyses.pca(traces)
    same(found.values[0], torch.tensor([[-1.0, 0], [1, 0], [0, 0.5], [0, -0.5]]))
    same(found.explained[0], torch.tensor([0.8, 0.2]))
    assert (found.tokens, found.texts) == (["00", "01", "10", "11"], [0, 0, 1, 1])
    assert found.points == ["encoder.0.after"]


@given(st.integers(0, 50))
def test_the_sign_of_a_direction_is_that_of_its_largest_entry(seed: int) -> None:
    x = torch.randn(8, 3, generator=torch.Generator().manual_seed(seed))
    one, other = (analyses.pca(vectors(each.tolist())) for each in (x, x.flip(0)))
    same(one.values[0], other.values[0].flip(0), 1e-4)
    mirrored = analyses.pca(vectors((-x).tolist()))
    same(mirrored.values[0], -one.values[0], 1e-4)


def test_neighbours_by_hand() -> None:
    traces = vectors([[1.0, 0.0], [0.0, 1.0]], [[5.0, 5.0], [3.0, 0.5]])
    found = analyses.neighbours(traces, 0, 0, top=2)
    assert (found.token, found.tokens, found.places) == ("00", [["11", "10"]], [[(1, 1), (1, 0)]])
    same(found.cosine[0], torch.tensor([3 / 9.25**0.5, 0.5**0.5]))


def test_what_is_static_stands_beside_what_is_in_context() -> None:
    trace = made(
        {"encoder.embedding": [[1.0, 0.0], [1.0, 0.0]], "encoder.0.after": [[2.0, 0.0], [0.0, 3.0]]},
        {"encoder": ["bank", "bank"]},
    )
    found = analyses.static_similarity(trace)
    assert found.values.tolist() == [[1, 1], [1, 0]]
    assert (found.rows, found.columns) == (["encoder.embedding", "encoder.0.after"], ["bank", "bank"])
    assert analyses.neighbours(trace, 0, 0, top=1).cosine.tolist() == [[1.0], [0.0]]


def test_cka_by_hand() -> None:
    x, y = [[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]], [[1.0], [-1.0], [0.0], [0.0]]
    found = analyses.cka(vectors(x), vectors(y))
    # XᵀX = 2 I, YᵀY = 2, YᵀX = (2, 0): 4 / (√8 · 2)
    assert float(found.values) == pytest.approx(0.5**0.5)


@given(st.integers(0, 50), st.floats(0.1, 10))
def test_cka_does_not_see_rotation_scale_and_shift(seed: int, scale: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(9, 4, generator=generator, dtype=torch.float64)
    rotation, _ = torch.linalg.qr(torch.randn(4, 4, generator=generator, dtype=torch.float64))
    found = analyses.cka(vectors(x.tolist()), vectors((scale * x @ rotation + 1).tolist()))
    assert float(found.values) == pytest.approx(1, abs=1e-4)
    other = torch.randn(9, 3, generator=generator)
    assert 0 <= float(analyses.cka(vectors(x.tolist()), vectors(other.tolist())).values) <= 1 + 1e-6


def test_cka_of_two_runs_leaves_out_what_only_one_has_read() -> None:
    from glassformer.looking.analyses import representations

    one, two = [["the", "old", "man"], ["no"]], [["[cls]", "the", "old", "man", "[sep]"], ["[cls]", "no", "[sep]"]]
    assert representations._shared(one, two) == ([0, 1, 2, 3], [1, 2, 3, 6])
    assert representations._shared(two, two) == ([*range(8)], [*range(8)])
    with pytest.raises(InputError, match="of 4 and 8 only 1 are the same"):
        representations._shared(one, [["die", "alte", "frau", "hier", "nicht"], ["[cls]", "no", "[sep]"]])


def test_without_a_stack_it_is_the_one_that_reads_the_text() -> None:
    model = FAMILIES["gpt2"].model()
    with gf.record(model) as trace, torch.no_grad():
        model(SOURCE)
    assert analyses.pca(trace).points[0] == analyses.cka(trace).rows[0] == "decoder.embedding"
    assert torch.equal(analyses.static_similarity(trace).values, analyses.static_similarity(trace, "decoder").values)
    assert analyses.neighbours(trace, 0, 0).points == analyses.neighbours(trace, 0, 0, "decoder").points
    assert analyses.table_neighbours(model, 3) == analyses.table_neighbours(model, 3, "decoder")


def test_a_run_that_ships() -> None:
    run = gf.load("en-de")
    keep = ["encoder.embedding", "before", "after"]
    traces = [run.look(text, keep) for text in ("He sat on the bank.", "The bank is closed.")]
    found = analyses.cka(traces)
    assert found.rows[:2] == ["encoder.embedding", "encoder.0.before"]
    same(found.values.diagonal(), torch.ones(len(found.rows)), 1e-5)
    same(found.values, found.values.T, 1e-5)
    near = analyses.neighbours(traces, 0, 4, top=1)
    assert near.token == "▁bank"  # noqa: S105
    assert (near.tokens[0], near.places[0]) == (["▁bank"], [(1, 1)])
    assert float(near.cosine[0]) == pytest.approx(1)  # static vectors know no context …
    assert float(near.cosine[-1]) < 0.999  # … and those of layers do


TWO = vectors([[1.0, 0.0], [0.0, 1.0]], [[5.0, 5.0]])


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: analyses.pca(TWO, "decoder"),
            'pca needs vectors of the stack "decoder", which the traces do not hold',
        ),
        (lambda: analyses.pca([]), 'pca needs vectors of the stack "encoder", which the traces do not hold: record'),
        (lambda: analyses.pca(TWO, components=3), "there are at most 2 components for these tokens, not 3"),
        (lambda: analyses.neighbours(TWO, 1, 1), "there is no token 1 in text 1: name one of those that were read"),
        (lambda: analyses.neighbours(TWO, 0, 0, top=3), "there are 2 other tokens, not 3"),
        (
            lambda: analyses.cka(TWO, TWO[:1]),
            "cka compares the same tokens, but of 3 and 2 only 2 are the same: take the same",
        ),
        (lambda: analyses.static_similarity(TWO[0]), "static_similarity needs encoder.embedding, which this trace doe"),
        (
            lambda: analyses.pca([*TWO, *vectors([[1.0, 2.0]], name="encoder.1.after")]),
            "pca needs encoder.0.after in every trace: record all with the same keep=",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(call: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=f"^{sentence}"):
        call()


def test_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=lambda values, **facts: (values, facts)))
    columns, _ = analyses.pca(TWO).pandas()
    assert list(columns) == ["point", "text", "token", "0", "1"]
    assert (columns["token"], columns["text"]) == (["00", "01", "10"], [0, 0, 1])
    assert analyses.neighbours(TWO, 0, 0, top=1).pandas()[0] == [["10"]]


def test_aligned_layers_are_the_same_picture_turned_towards_the_one_before() -> None:
    torch.manual_seed(0)
    first = torch.randn(9, 2) - 0.1
    turn = torch.tensor([[math.cos(2.0), math.sin(2.0)], [-math.sin(2.0), math.cos(2.0)]])
    layers = torch.stack([first, first @ turn, (first @ turn).flip(1)])  # turned, and mirrored
    found = analyses.PCA(layers, ["a", "b", "c"], ["x"] * 9, [0] * 9, torch.ones(3, 2) / 2)
    same(analyses.aligned(found).values, first.expand(3, -1, -1))


def test_table_neighbours_are_the_nearest_rows() -> None:
    model = FAMILIES["gpt2"].model()
    table = torch.nn.functional.normalize(model.decoder.embedding.weight.detach(), dim=-1)
    cosine = table @ table[5]
    found = analyses.table_neighbours(model, 5, "decoder", top=3)
    expected = [each for each in cosine.argsort(descending=True).tolist() if each != 5][:3]
    assert [token for token, _ in found] == expected
    assert found[0][1] == pytest.approx(float(cosine[expected[0]]), abs=1e-5)
    with pytest.raises(InputError, match="there is no token 99"):
        analyses.table_neighbours(model, 99, "decoder")
    with pytest.raises(InputError, match="no table of tokens"):
        analyses.table_neighbours(FAMILIES["vit"].model(), 0)
