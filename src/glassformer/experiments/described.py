"""Pictures and sounds that are described in words, drawn at random: two things at two places, and four vowels in a row.

A picture has two rows and two columns of places. A vowel is the sum of the harmonics of a voice, loudest near its
two formants; a letter lasts for SHORT frames, and for LONG if ":" comes after it. Some combinations, of a colour with a
shape and of a vowel with the next, occur only if they are asked for.

B batch, S words, N parts of what is described (patches, frames), F numbers of a part, M units that are judged (places,
frames), K templates of a unit
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glassformer.data.scenes import COLOURS as PAINTS
from glassformer.experiments.batches import Rng
from glassformer.tasks.protocol import Tensors

# --- pictures
COLOURS, SHAPES = tuple(PAINTS), ("circle", "square", "triangle", "cross")
PLACES = ("top-left", "top-right", "bottom-left", "bottom-right")
WORDS = ("a", "and", *COLOURS, *SHAPES, *PLACES)
PLACE, PATCH, SIDE = 12, 6, 24  # edges in pixels
NEW_THINGS = tuple((number, number) for number in range(len(SHAPES)))  # colour and shape: a red circle, …
FIRST, SECOND = slice(0, 4), slice(5, 9)  # the words of each thing; "and" stands between

# --- sounds
VOWELS = {"a": (730, 1090), "e": (530, 1840), "i": (270, 2290), "o": (570, 840), "u": (300, 870)}  # formants in hertz
MARK, END = ":", "."
LETTERS = (*VOWELS, MARK, END)
SPOKEN, SHORT, LONG = 4, 3, 5  # vowels of a text, and frames of a vowel
FRAMES, LENGTH = SPOKEN * LONG, 2 * SPOKEN + 1  # at most; the rest is silence, and END
NEW_PAIRS = tuple((number, (number + 2) % len(VOWELS)) for number in range(len(VOWELS)))  # a vowel and the next
RATE, PITCH, SAMPLES = 8000, 125, 320  # samples a second, hertz, samples of a frame: five periods of the voice
HARMONICS = RATE // PITCH // 2 - 1  # below half of the rate
BANDWIDTH, SOFTER = 130, 0.6  # hertz; of the second formant, beside the first


@dataclass(frozen=True)
class Described(Tensors):
    """Texts, what they describe, part by part, which words each part is told by, and what each unit is."""

    words: Tensor  # (B, S)
    values: Tensor  # (B, N, F)
    own: Tensor  # (B, N, S): the words that describe a part; none, if it is paper or silence
    units: Tensor  # (B, M): numbers of templates

    @property
    def targets(self) -> int:
        """One a part."""
        return self.values.shape[0] * self.values.shape[1]

    @property
    def tokens(self) -> int:
        """All words; nothing is padded."""
        return self.words.numel()

    @property
    def padded_tokens(self) -> int:
        """As many."""
        return self.words.numel()


def nearest(units: Tensor, templates: Tensor) -> Tensor:
    """The template (K, F) that is nearest to each unit (B, M, F), by its number: (B, M)."""
    return torch.cdist(units, templates[None].expand(len(units), -1, -1)).argmin(dim=-1)


# --- pictures


def shape(name: str) -> Tensor:
    """Where a shape is, (PLACE, PLACE), 1 or 0."""
    middle = torch.arange(PLACE) + 0.5 - PLACE / 2
    y, x = middle[:, None], middle[None]
    inside = {
        "circle": x**2 + y**2 < 30,
        "square": (x.abs() < 5) & (y.abs() < 5),
        "triangle": (2 * x.abs() < y + 6) & (y < 5),
        "cross": ((x.abs() < 2) | (y.abs() < 2)) & (x.abs() < 6) & (y.abs() < 6),
    }[name]
    return inside.float()


def things() -> Tensor:
    """The ink of all things, and of none at the end: (K, PLACE * PLACE * 3), by colour and then by shape."""
    ink = [1 - torch.tensor(PAINTS[colour]) / 255 for colour in COLOURS]
    drawn = [shape(name)[..., None] * each for each in ink for name in SHAPES]
    return torch.stack([*drawn, torch.zeros(PLACE, PLACE, 3)]).flatten(1)


def picture(units: Tensor) -> Tensor:
    """Pictures (B, SIDE, SIDE, 3) in ink, 0 being paper, of the things at all places (B, M)."""
    return _joined(things()[units], PLACE)


def patches(pictures: Tensor) -> Tensor:
    """Pictures (B, SIDE, SIDE, 3) cut into squares, (B, N, F)."""
    return _cut(pictures, PATCH)


def joined(parts: Tensor) -> Tensor:
    """Patches (B, N, F) as pictures (B, SIDE, SIDE, 3)."""
    return _joined(parts, PATCH)


def seen(parts: Tensor) -> Tensor:
    """Which thing is at each place (B, M) of pictures in patches (B, N, F), by the nearest template."""
    return nearest(_cut(joined(parts), PLACE), things())


def _cut(pictures: Tensor, edge: int) -> Tensor:
    """Squares of pictures, row by row."""
    count = SIDE // edge
    return pictures.reshape(-1, count, edge, count, edge, 3).transpose(2, 3).reshape(len(pictures), count**2, -1)


def _joined(squares: Tensor, edge: int) -> Tensor:
    """Squares (B, N, F) of this edge, row by row, as pictures (B, SIDE, SIDE, 3)."""
    count = SIDE // edge
    return squares.reshape(-1, count, count, edge, edge, 3).transpose(2, 3).reshape(-1, SIDE, SIDE, 3)


def drawings(rng: Rng, count: int = 32, new: bool = False) -> Described:
    """Captions of two things at two places, and their pictures; with `new`, all things are of the new ones."""
    pairs = [(c, s) for c in range(len(COLOURS)) for s in range(len(SHAPES)) if ((c, s) in NEW_THINGS) == new]
    chosen = np.array(pairs)[rng.integers(len(pairs), size=(count, 2))]  # (B, 2, 2): of each thing colour and shape
    places = np.argsort(rng.random((count, len(PLACES))), axis=1)[:, :2]  # (B, 2)
    words = np.full((count, SECOND.stop), WORDS.index("a"))
    words[:, FIRST.stop] = WORDS.index("and")
    units = np.full((count, len(PLACES)), len(COLOURS) * len(SHAPES))  # nothing
    own = np.zeros((count, len(PLACES), SECOND.stop), dtype=bool)
    rows = np.arange(count)
    for number, phrase in enumerate((FIRST, SECOND)):
        (colour, form), place = chosen[:, number].T, places[:, number]
        begins = [WORDS.index(each[0]) for each in (COLOURS, SHAPES, PLACES)]
        words[:, phrase.start + 1 : phrase.stop] = np.stack((colour, form, place), axis=1) + begins
        units[rows, place] = colour * len(SHAPES) + form
        own[rows, place, phrase] = True
    by_place = torch.from_numpy(own).reshape(count, SIDE // PLACE, SIDE // PLACE, -1)
    across = PLACE // PATCH
    by_patch = by_place.repeat_interleave(across, 1).repeat_interleave(across, 2).flatten(1, 2)  # (B, N, S)
    things_at = torch.from_numpy(units)
    return Described(torch.from_numpy(words), patches(picture(things_at)), by_patch, things_at)


# --- sounds


def spectra() -> Tensor:
    """How loud each harmonic of the voice is in each vowel, and in silence at the end: (K, HARMONICS)."""
    hertz = PITCH * torch.arange(1, HARMONICS + 1)
    bumps = torch.tensor([*VOWELS.values()])[..., None] - hertz  # (vowels, 2, HARMONICS)
    loud = torch.exp(-((bumps / BANDWIDTH) ** 2) / 2) * torch.tensor([1, SOFTER])[:, None]
    return torch.cat((loud.sum(dim=1), torch.zeros(1, HARMONICS)))


def wave(frames: Tensor) -> Tensor:
    """The sound of frames (B, N, HARMONICS): the voice's harmonics, each as loud as it is told, (B, N * SAMPLES)."""
    time = torch.arange(SAMPLES, dtype=torch.float64) / RATE
    tones = torch.sin(2 * torch.pi * PITCH * torch.arange(1, HARMONICS + 1)[:, None] * time)  # (HARMONICS, SAMPLES)
    return (frames.double() @ tones).flatten(1).float()


def analysed(sounds: Tensor) -> Tensor:
    """How loud each harmonic is in each frame of sounds (B, N * SAMPLES): (B, N, HARMONICS)."""
    frames = sounds.reshape(len(sounds), -1, SAMPLES)
    loud = torch.fft.rfft(frames).abs() * 2 / SAMPLES  # (B, N, SAMPLES / 2 + 1)
    periods = PITCH * SAMPLES // RATE
    return loud[..., periods : (HARMONICS + 1) * periods : periods]  # type: ignore[no-any-return]


def heard(sounds: Tensor) -> Tensor:
    """Which vowel each frame of sounds (B, N * SAMPLES) is, by the nearest template: (B, N)."""
    return nearest(analysed(sounds), spectra())


def sayings(rng: Rng, count: int = 32, new: bool = False) -> Described:
    """Texts of vowels, short and long, and their frames; with `new`, every text has a pair of the new ones."""
    spoken = [_vowels(rng, new) for _ in range(count)]
    marked = rng.random((count, SPOKEN)) < 0.5
    words, units, own = zip(*(_said(*each) for each in zip(spoken, marked, strict=True)), strict=True)
    frames = torch.from_numpy(np.stack(units))
    return Described(torch.from_numpy(np.stack(words)), spectra()[frames], torch.from_numpy(np.stack(own)), frames)


def _vowels(rng: Rng, new: bool) -> Any:
    """Vowels in a row (SPOKEN) that have a new pair, or none."""
    while True:
        vowels = rng.integers(len(VOWELS), size=SPOKEN)
        if any(pair in NEW_PAIRS for pair in pairwise(vowels)) == new:
            return vowels


def _said(vowels: Any, marked: Any) -> tuple[Any, Any, Any]:
    """Of vowels (SPOKEN), each long if it is marked: words (S), the vowel of each frame (N), and its words (N, S)."""
    words = np.full(LENGTH, LETTERS.index(END))
    units, own = np.full(FRAMES, len(VOWELS)), np.zeros((FRAMES, LENGTH), dtype=bool)
    at = frame = 0
    for vowel, long in zip(vowels, marked, strict=True):
        written, lasts = 1 + int(long), LONG if long else SHORT
        words[at : at + written] = (vowel, LETTERS.index(MARK))[:written]
        units[frame : frame + lasts] = vowel
        own[frame : frame + lasts, at : at + written] = True
        at, frame = at + written, frame + lasts
    return words, units, own
