"""Batches of images: what is drawn for them, and what is lost on them."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from glassformer.data import Assets
from glassformer.data.examples import from_line, to_line
from glassformer.models import vit
from glassformer.tasks.images import ImageBatch, ImageCollator, Images, ImagesTask, LabelledImage, image_loss
from glassformer.tasks.images.pictures import moved, normalised
from glassformer.tasks.objective import Objective

from .contexts import context

TASK = ImagesTask(kind="images")


def examples(count: int = 6, size: int = 4) -> list[LabelledImage]:
    pixels = np.random.default_rng(0).integers(0, 256, (count, size, size, 3), np.uint8)
    return [LabelledImage(each, str(number), f"{number}.png") for number, each in enumerate(pixels)]


def images(count: int = 6, size: int = 4, classes: int = 10) -> Images:
    rows = TASK.encode(examples(count, size), context((), 1, [str(number) for number in range(classes)]))
    return Images(rows.rows(), size, 3)


@pytest.mark.parametrize("classes", [10, 256, 300])
def test_rows_are_pixels_and_the_number_of_the_label(classes: int) -> None:
    made = examples(3)
    rows = TASK.encode(made, context((), 1, [str(number) for number in reversed(range(2, classes))]))
    assert rows.counts == {"label": 2}
    assert rows.lengths.tolist() == [[48, 1]]
    assert rows.flat.tolist() == [*made[2].pixels.ravel().tolist(), classes - 3]
    assert rows.flat.itemsize == (1 if classes <= 256 else 2)
    labels = [str(number) for number in range(classes)]
    assert TASK.largest_number(Assets(labels=labels)) == max(255, classes - 1)


def test_images_are_found_again_and_each_counts_as_one() -> None:
    found, made = images(), examples()
    pixels, labels = found[np.array([4, 0])]
    assert (pixels == np.stack([made[4].pixels, made[0].pixels])).all()
    assert labels.tolist() == [4, 0]
    assert found.lengths.tolist() == [[1, 0]] * 6
    read = from_line(LabelledImage, to_line(made[1]))
    assert (read.pixels == made[1].pixels).all()
    assert read[1:] == made[1][1:]


def test_shades_are_around_nought() -> None:
    shades = normalised(np.array([[[[0, 255, 51]]]], np.uint8), 0.5, 0.5)
    torch.testing.assert_close(shades, torch.tensor([-1.0, 1.0, -0.6]).reshape(1, 3, 1, 1))


def test_a_deviation_that_makes_pixels_infinite_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"greater than or equal to 0\.001"):
        ImagesTask(kind="images", deviation=1e-308)


@given(st.integers(-4, 4), st.integers(-4, 4))
def test_an_image_is_moved_and_its_edge_fills_the_rest(down: int, right: int) -> None:
    pixels, _ = images(1, 5)[np.array([0])]
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
    assert plain.labels.tolist() == mirrored.labels.tolist() == list(range(6))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_cross_entropy(smoothing: float) -> None:
    torch.manual_seed(0)
    model = vit(classes=6, image=4, patch=2, width=8, heads=2, layers=1, hidden=16)
    batch = ImageCollator(images(), 0.5, 0.5)(np.arange(6), np.random.default_rng(0))
    value = Objective(model, image_loss, smoothing)(batch)
    wanted = F.cross_entropy(model(batch.pixels), batch.labels, reduction="sum", label_smoothing=smoothing)
    torch.testing.assert_close(value, wanted)
    assert (batch.targets, batch.tokens, batch.padded_tokens) == (6, 6, 6)
    assert isinstance(batch.to("cpu"), ImageBatch)
