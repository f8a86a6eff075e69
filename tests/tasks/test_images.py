"""Batches of images: what is drawn for them, and what is lost on them."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from glassformer.models import vit
from glassformer.tasks import ImageBatch, ImageCollator, image_loss, normalised
from glassformer.tasks.images import moved
from glassformer.training.objective import Objective


def images(count: int = 6, size: int = 4) -> Any:
    pixels = np.random.default_rng(0).integers(0, 256, (count, size, size, 3), np.uint8)
    return SimpleNamespace(pixels=pixels, numbers=np.arange(count, dtype=np.int32))


def test_shades_are_around_nought() -> None:
    shades = normalised(np.array([[[[0, 255, 51]]]], np.uint8), 0.5, 0.5)
    torch.testing.assert_close(shades, torch.tensor([-1.0, 1.0, -0.6]).reshape(1, 3, 1, 1))


@given(st.integers(-4, 4), st.integers(-4, 4))
def test_an_image_is_moved_and_its_edge_fills_the_rest(down: int, right: int) -> None:
    pixels = images(1, 5).pixels
    found = moved(pixels, np.array([[down, right]]))
    for row in range(5):
        for column in range(5):
            there = min(max(row - down, 0), 4), min(max(column - right, 0), 4)
            assert (found[0, row, column] == pixels[0][there]).all()


def test_the_dice_decide_and_the_same_dice_decide_alike() -> None:
    collate = ImageCollator(images(), 0.5, 0.5, shift=1, flip=True)
    rows = np.arange(6)
    one, same, other = (collate(rows, np.random.default_rng(seed)).pixels for seed in (1, 1, 2))
    assert one.equal(same)
    assert not one.equal(other)


def test_some_are_mirrored_and_the_others_are_as_they_were() -> None:
    plain = ImageCollator(images(), 0.5, 0.5)(np.arange(6), np.random.default_rng(0))
    mirrored = ImageCollator(images(), 0.5, 0.5, flip=True)(np.arange(6), np.random.default_rng(0))
    same = [one.equal(other) for one, other in zip(plain.pixels, mirrored.pixels, strict=True)]
    turned = [one.flip(-1).equal(other) for one, other in zip(plain.pixels, mirrored.pixels, strict=True)]
    assert all(one != other for one, other in zip(same, turned, strict=True))
    assert {True, False} == set(same)
    assert plain.right.tolist() == mirrored.right.tolist() == list(range(6))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_cross_entropy(smoothing: float) -> None:
    torch.manual_seed(0)
    model = vit(classes=6, image=4, patch=2, width=8, heads=2, layers=1, hidden=16)
    batch = ImageCollator(images(), 0.5, 0.5)(np.arange(6), np.random.default_rng(0))
    value = Objective(model, smoothing, image_loss)(batch)
    wanted = F.cross_entropy(model(batch.pixels), batch.right, reduction="sum", label_smoothing=smoothing)
    torch.testing.assert_close(value, wanted)
    assert (batch.answers, batch.tokens, batch.places) == (6, 6, 6)
    assert isinstance(batch.to("cpu"), ImageBatch)
