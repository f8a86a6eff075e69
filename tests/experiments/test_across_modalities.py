"""Words to pictures and sounds: what is drawn and said, by hand; the model's shapes; and a verdict that tests all."""

from collections.abc import Callable
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
import torch

from glassformer.experiments import Finding, across_modalities, described
from glassformer.experiments.across_modalities import CROSS, KINDS, MEAN, PICTURES, SOUNDS, Example, Maker, _looks
from glassformer.experiments.described import (
    COLOURS,
    FRAMES,
    HARMONICS,
    LETTERS,
    NEW_PAIRS,
    NEW_THINGS,
    PITCH,
    SAMPLES,
    SHAPES,
    SIDE,
    VOWELS,
    WORDS,
)
from glassformer.experiments.trial import Trial
from glassformer.looking import record
from glassformer.parts.attention import MultiHeadAttention

from .test_claims import given

RNG = np.random.default_rng


def test_shapes_by_hand() -> None:
    assert described.shape("square").sum() == 10 * 10
    assert described.shape("cross").sum() == 2 * 4 * 12 - 4 * 4
    widths = described.shape("triangle").sum(dim=1)
    assert (widths.diff()[:-1] >= 0).all()  # wider from the top down, and paper below
    assert described.shape("circle").equal(described.shape("circle").T)


@pytest.mark.parametrize("new", [False, True])
def test_a_picture_shows_what_its_caption_says(new: bool) -> None:
    batch = described.drawings(RNG(0), count=40, new=new)
    templates = described.things()
    pictures = described.joined(batch.values)  # (B, SIDE, SIDE, 3)
    for words, picture, own in zip(batch.words.tolist(), pictures, batch.own, strict=True):
        told = [WORDS[word] for word in words]
        assert [told[0], told[4], told[5]] == ["a", "and", "a"]
        ink = 0.0
        for colour, form, place in (told[1:4], told[6:9]):
            number = COLOURS.index(colour) * len(SHAPES) + SHAPES.index(form)
            assert ((COLOURS.index(colour), SHAPES.index(form)) in NEW_THINGS) == new
            top, left = 12 * place.startswith("bottom"), 12 * place.endswith("right")
            thing = picture[top : top + 12, left : left + 12]
            torch.testing.assert_close(thing.flatten(), templates[number])
            ink += thing.sum().item()
            words_of = own.reshape(4, 4, -1)[top // 6, left // 6].nonzero().flatten().tolist()
            assert words_of == ([0, 1, 2, 3] if told[1:4] == [colour, form, place] else [5, 6, 7, 8])
        assert picture.sum().item() == pytest.approx(ink, rel=1e-4)  # and nothing else
    assert described.seen(batch.values).equal(batch.units)


def test_patches_are_squares_row_by_row() -> None:
    pixels = torch.arange(SIDE * SIDE * 3.0).reshape(1, SIDE, SIDE, 3)
    parts = described.patches(pixels)
    assert parts.shape == (1, 16, 108)
    assert parts[0, 1].reshape(6, 6, 3).equal(pixels[0, :6, 6:12])
    assert described.joined(parts).equal(pixels)


def test_a_saying_by_hand() -> None:
    words, units, own = described._said([0, 3, 0, 4], [False, True, False, False])
    assert "".join(LETTERS[word] for word in words) == "ao:au...."
    a, o, u, silence = 0, 3, 4, len(VOWELS)
    assert units.tolist() == 3 * [a] + 5 * [o] + 3 * [a] + 3 * [u] + 6 * [silence]
    assert own[3].nonzero()[0].tolist() == [1, 2]  # o and its mark
    assert not own[14:].any()


@pytest.mark.parametrize("new", [False, True])
def test_new_pairs_of_vowels_are_in_new_sayings_only(new: bool) -> None:
    batch = described.sayings(RNG(1), count=30, new=new)
    assert batch.values.shape == (30, FRAMES, HARMONICS)
    for words in batch.words.tolist():
        vowels = [word for word in words if word < len(VOWELS)]
        assert any(pair in NEW_PAIRS for pair in pairwise(vowels)) == new
    assert described.heard(described.wave(batch.values)).equal(batch.units)


def test_a_sound_has_the_spectrum_that_it_was_made_of() -> None:
    frames = torch.rand(2, 3, HARMONICS)
    sound = described.wave(frames)
    assert sound.shape == (2, 3 * SAMPLES)
    torch.testing.assert_close(described.analysed(sound), frames, atol=1e-5, rtol=1e-4)
    loudest = PITCH * (1 + described.spectra()[:-1].argmax(dim=1))
    assert all(abs(int(hertz) - first) <= PITCH for hertz, (first, _) in zip(loudest, VOWELS.values(), strict=True))


@pytest.mark.parametrize("name", KINDS)
def test_parts_read_words_by_cross_attention_without_a_mask(name: str) -> None:
    kind = KINDS[name]
    words = kind.draw(RNG(2), count=3).words
    for reads, keys in ((CROSS, words.shape[1]), (MEAN, 1)):
        model = Maker(kind, reads).eval()
        with record(model) as trace:
            assert model(words).shape == (3, kind.parts, kind.numbers)
        assert trace["decoder.0.cross"].shape == (3, 4, kind.parts, keys)
        assert (trace["decoder.0.self"] > 0).all()  # each part sees all, later ones too
        assert sum(isinstance(part, MultiHeadAttention) for part in model.modules()) == 3


def test_looks_by_hand() -> None:
    weights = torch.tensor([[[0.7, 0.2, 0.1], [0.3, 0.6, 0.1], [0.1, 0.1, 0.8]]])
    own = torch.tensor([[[True, False, False], [True, False, True], [False, False, False]]])
    found = _looks(weights, own)  # the third part is paper
    assert found == pytest.approx({"own": 0.5, "given": (0.7 + 0.4) / 2, "chance": 0.5})


@pytest.mark.parametrize(
    ("change", "holds", "said"),
    [
        ({}, True, "So pictures are made of words by it, and their parts read"),
        ({"right": 0.8}, False, "So pictures are not made"),
        ({"mean": 0.85}, False, "So pictures are not made"),  # the mean of the words does as well
        ({"own": 0.6}, True, "their parts do not always read"),  # told, but the claim does not need it
    ],
)
def test_the_verdict_needs_new_things_and_a_baseline_that_fails(
    monkeypatch: pytest.MonkeyPatch, change: dict[str, float], holds: bool, said: str
) -> None:
    usual = {"right": 0.98, "mean": 0.2, "own": 0.9}

    def result(variant: tuple[str, str], trial: Trial) -> Any:
        kind, reads = variant
        numbers = usual | (change if kind == PICTURES else {})
        right = numbers["right" if reads == CROSS else "mean"]
        found = {"right": right, "whole": right, "known": 1.0, "own": numbers["own"], "given": 0.8, "chance": 0.4}
        return found, [Example(["a"], np.zeros(1), np.zeros(1), np.zeros(1))]

    given(monkeypatch, result)
    finding = across_modalities.run(Trial(0))
    assert finding.holds is holds
    assert said in finding.measured
    assert "no photograph and no human voice" in finding.measured


def test_it_runs_and_says_what_it_does_not_make(found: Callable[[str], Finding]) -> None:
    finding = found("across-modalities")
    assert {(row["kind"], row["reads"]) for row in finding.rows} == {*product((PICTURES, SOUNDS), (CROSS, MEAN))}
    assert "no human voice" in finding.measured
