"""Schemes of positions: worked by formula, for each kind and every family."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import glassformer as gf
from glassformer import models
from glassformer.errors import InputError
from glassformer.looking.analyses import position_schemes
from glassformer.parts.schemes import alibi, learned, relative, rotary, sinusoidal, unordered
from looking.families import FAMILIES, SMALL, V


def made(positions: Any, **more: Any) -> Any:
    return models.transformer(V, **SMALL, positions=positions, **more)


def test_sinusoids_are_alike_by_distance_alone() -> None:
    (found,) = position_schemes(made(sinusoidal), length=20)
    assert (found.kind, found.stack, found.bias) == ("Sinusoidal", "encoder", None)
    assert found.vectors is not None
    assert found.vectors.shape == (20, 16)
    frequencies = [10_000 ** (-2 * pair / 16) for pair in range(8)]
    expected = [sum(math.cos(distance * each) for each in frequencies) / 8 for distance in range(20)]
    torch.testing.assert_close(found.by_distance, torch.tensor(expected), atol=1e-4, rtol=1e-4)


def test_a_trained_table_is_shown_as_far_as_it_reaches() -> None:
    model = made(learned, length=12)
    (found,) = position_schemes(model, "decoder", length=64)
    assert found.kind == "Learned"
    torch.testing.assert_close(found.vectors, model.decoder.embedding.positions.weight.detach()[:12])
    assert found.distances == list(range(12))
    assert float(found.by_distance[0]) == pytest.approx(1.0)


def test_rotations_leave_what_their_angles_say() -> None:
    (found,) = position_schemes(made(rotary), length=10)
    frequencies = [10_000 ** (-2 * pair / 4) for pair in range(2)]  # heads have width 4
    expected = [sum(math.cos(distance * each) for each in frequencies) / 2 for distance in range(10)]
    torch.testing.assert_close(found.by_distance, torch.tensor(expected), atol=1e-5, rtol=1e-5)
    assert found.similarity is not None
    assert float(found.similarity[7, 3]) == pytest.approx(expected[4], abs=1e-5)


def test_alibi_falls_with_distance_and_slope() -> None:
    (found,) = position_schemes(made(alibi), "decoder", length=6)
    slopes = torch.tensor([2.0 ** (-8 * (head + 1) / 4) for head in range(4)])
    torch.testing.assert_close(found.by_distance, -slopes[:, None] * torch.arange(6))
    both = position_schemes(made(alibi), "encoder", length=6)[0]
    assert both.distances == list(range(-5, 6))
    assert both.bias is not None
    torch.testing.assert_close(both.bias, both.bias.flip(1))  # it does not matter on which side


def test_relative_biases_are_those_of_their_buckets() -> None:
    model = made(relative)
    (found,) = position_schemes(model, length=9)
    order = model.encoder.blocks[0].attention.part.positions
    for distance, column in zip(found.distances, found.by_distance.T, strict=True):
        bucket = int(order.bucket(torch.tensor(-distance)))  # a key behind the query is not ahead
        torch.testing.assert_close(column, order.weight.detach()[bucket])


def test_no_order_has_no_scheme() -> None:
    assert position_schemes(made(unordered)) == []
    assert position_schemes(FAMILIES["lstm"].model(), "decoder") == []


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_has_the_schemes_of_its_parts(name: str) -> None:
    model = FAMILIES[name].model()
    for stack in [each for each in ("encoder", "decoder") if hasattr(model, each)]:
        for found in position_schemes(model, stack, 5):
            assert found.by_distance.shape[-1] == len(found.distances)
            assert bool(torch.isfinite(found.by_distance).all())


def test_what_is_not_there_is_refused() -> None:
    for length in (1, 100_000):
        with pytest.raises(InputError, match=f"a scheme is looked at over 2 to 4,096 positions, not {length:,}: each"):
            position_schemes(made(sinusoidal), length=length)
    with pytest.raises(InputError, match='no stack "decoder"'):
        position_schemes(FAMILIES["bert"].model(), "decoder")


def test_the_shipped_model_has_sinusoids() -> None:
    assert [each.kind for each in position_schemes(gf.load("en-de"), "decoder")] == ["Sinusoidal"]
