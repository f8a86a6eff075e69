"""Scenes: what is drawn is what is said, and what is said can be read back."""

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.data import Report
from glassformer.data.scenes import (
    COLOURS,
    NAMES,
    Event,
    Film,
    Scene,
    Thing,
    descriptions,
    meaning,
    random_film,
    random_scene,
)
from glassformer.data.sources.scenes import PAPER, ScenesSource, film, picture


@given(st.randoms(use_true_random=False), st.booleans(), st.integers(1, 2))
def test_whatever_is_said_is_read_back(rng: random.Random, films: bool, things: int) -> None:
    told = (random_film if films else random_scene)(rng, things)
    said = descriptions(told)
    assert len({*said}) == len(NAMES)
    assert {meaning(each) for each in said} == {told}


def test_grammars() -> None:
    scene = Scene.of(Thing("small", "red", "circle"), "left of", Thing("", "blue", "square"))
    assert descriptions(scene) == (
        "a small red circle left of a blue square",
        "a small red circle is left of a blue square",
        "there is a blue square right of a small red circle",
        "right of a small red circle is a blue square",
    )
    assert {meaning("left of a blue square is a small red circle"), *map(meaning, descriptions(scene))} == {scene}
    moves = Film.of(Event(Thing("", "red", "circle"), "moves from left to right"))
    assert descriptions(moves, ["sentence", "existence"]) == (
        "a red circle moves from left to right",
        "there is a red circle moving from left to right",
    )


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "a red",
            "a circle",
            "red circle",
            "a red circle left of",
            "a red circle left of a blue",
            "a  red circle",
        ),
        *("a red circle beside a blue square", "a red circle moves", "there is a red circle moves from left to right"),
        *(
            "a red circle grows and a blue square grows",
            "A red circle",
            "a red circle ",
            "a red circle\n",
            "a  red circle",
        ),
    ],
)
def test_what_is_no_description_has_no_meaning(text: str) -> None:
    assert meaning(text) is None


def test_the_same_in_other_words_is_the_same_and_what_differs_in_a_word_is_not() -> None:
    one = meaning("a small red circle left of a blue square")
    assert one == meaning("there is a blue square right of a small red circle")
    for other in ("large red", "small green", "red"):
        assert one != meaning(f"a {other} circle left of a blue square")
    assert one != meaning("a small red circle right of a blue square")
    assert one != meaning("a small red circle above a blue square")


def centre(pixels: np.ndarray, colour: str) -> tuple[float, float, int]:
    """Where the pixels of a colour are on average, down and right, and how many."""
    near = np.abs(pixels.astype(int) - COLOURS[colour]).sum(axis=-1) < 30
    down, right = np.nonzero(near)
    return float(down.mean()), float(right.mean()), int(near.sum())


@pytest.mark.parametrize("relation", ["left of", "right of", "above", "below"])
def test_things_are_drawn_where_they_are_said_to_be(relation: str) -> None:
    rng = random.Random(3)
    for _ in range(20):
        scene = Scene.of(Thing("small", "red", "circle"), relation, Thing("large", "blue", "square"))
        pixels = picture(scene, 32, rng)
        (red_down, red_right, red), (blue_down, blue_right, blue) = (centre(pixels, each) for each in ("red", "blue"))
        right, down = blue_right - red_right, blue_down - red_down
        found = ("left of" if right > 0 else "right of") if abs(right) > abs(down) else "above" if down > 0 else "below"
        assert found == relation
        assert 3 * red < blue
        assert tuple(pixels[0, 0]) == PAPER or tuple(pixels[-1, -1]) == PAPER


def test_films_show_what_they_say() -> None:
    rng = random.Random(5)
    thing = Thing("", "green", "circle")
    for _ in range(10):
        moves = film(Film.of(Event(thing, "moves from right to left")), 32, rng)
        assert 4 <= len(moves) <= 8
        places = [centre(each, "green")[1] for each in moves]
        assert places == sorted(places, reverse=True)
        sizes = [centre(each, "green")[2] for each in film(Film.of(Event(thing, "grows")), 32, rng)]
        assert sizes == sorted(sizes)
        first, *_, last = film(Film.of(Event(thing, "turns black")), 32, rng)
        assert centre(first, "green")[2] > 20
        assert centre(last, "black")[2] > 20


def test_what_is_held_out_is_told_of_no_training_image(tmp_path: Path) -> None:
    source = ScenesSource(kind="scenes", count=300, size=16)
    told = {
        split: {meaning(each[0].captions[0]) for each in source.read(split, tmp_path, Report())}  # type: ignore[attr-defined]
        for split in ("train", "test")
    }
    assert not told["train"] & told["test"]
    assert None not in told["train"]


def test_a_seed_gives_the_same_images_and_another_seed_others(tmp_path: Path) -> None:
    def images(seed: int) -> list[bytes]:
        source = ScenesSource(kind="scenes", count=5, size=16, films=True, seed=seed)
        rows = source.read("train", tmp_path, Report())
        return [frame.tobytes() for (frames, _, _), _ in rows for frame in frames]

    assert images(1) == images(1)
    assert images(1) != images(2)
