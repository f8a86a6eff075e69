"""Scenes: images that are drawn and described at random, for captions that can be checked word by word.

A hash of what is to be seen decides on the split: what is held out is told of no training image, in whatever words.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field

from glassformer.data.examples import Captioned, Pixels
from glassformer.data.report import Report
from glassformer.data.scenes import (
    COLOURS,
    PATHS,
    Event,
    Film,
    Scene,
    Thing,
    descriptions,
    meaning,
    random_film,
    random_scene,
)
from glassformer.data.source import Found, Split
from glassformer.data.sources.generated import HELD_OUT, GeneratedSource
from glassformer.recipe.values import Count, Switch, Whole

if TYPE_CHECKING:
    from PIL.ImageDraw import ImageDraw

Grammar = Literal["phrase", "sentence", "existence", "place"]
RADII = {"small": 0.085, "": 0.14, "large": 0.21}  # of a thing, as a part of the image's side
FRAMES = 4, 8  # of a film, at least and at most
FINER = 4  # times as large an image is drawn, to be scaled down: edges are smooth
VERSION = 1  # to be raised when a seed gives other images or captions
PAPER = (246, 244, 240)
GAP = 0.04  # between two things, at least
TRIES = 100  # to find places where two things do not touch


class Drawn(NamedTuple):
    """A thing at a place: the centre and the radius are parts of the image's side."""

    x: float
    y: float
    radius: float
    colour: tuple[int, ...]
    shape: str

    def touches(self, other: Drawn) -> bool:
        """Whether it comes too near to another one."""
        return float(np.hypot(self.x - other.x, self.y - other.y)) < self.radius + other.radius + GAP


class ScenesSource(GeneratedSource):
    """Coloured shapes in relations, and what is to be seen: "a small red circle left of a blue square"."""

    gives = Captioned
    parses: ClassVar[bool] = True
    kind: Literal["scenes"]
    count: Count = Field(10_000, description="training examples")
    size: Annotated[Whole, Field(ge=16, le=512)] = Field(32, description="pixels on each side of an image")
    things: Annotated[Whole, Field(ge=1, le=2)] = Field(2, description="things in an image, at most")
    films: Switch = Field(False, description="films of 4 to 8 images: things move, grow, shrink or turn colour")
    grammars: Annotated[tuple[Grammar, ...], Field(min_length=1, max_length=4)] = Field(
        ("phrase", "sentence", "existence", "place"), description="how images are described: in each of these ways"
    )

    def read(self, split: Split, base: Path, report: Report) -> Iterator[Found]:
        """As many images as asked for, each with all its captions."""
        name, count = f"{self.kind} {split}", self.count if split == "train" else min(self.count, HELD_OUT)
        rng, draw = random.Random(f"{name} {self.seed}"), random_film if self.films else random_scene
        found = 0
        while found < count:
            told = draw(rng, self.things)
            if self._split_of(repr(told)) == split:
                found += 1
                images = film(told, self.size, rng) if isinstance(told, Film) else (picture(told, self.size, rng),)
                yield Captioned(images, descriptions(told, self.grammars), f"{name} {found}"), f"{name}:{found}"

    def versions(self, base: Path) -> dict[str, Any]:
        """Pillow's, and that of what is drawn and said."""
        return {"pillow": version("pillow"), "scenes": VERSION}

    def meaning(self, text: str) -> Scene | Film | None:
        """What a caption says is to be seen."""
        return meaning(text)


def picture(scene: Scene, size: int, rng: random.Random) -> Pixels:
    """A scene as an image of so many pixels on each side, (S, S, 3); where things are exactly is drawn at random."""
    if len(scene.things) == 1:
        return painted([_anywhere(scene.things[0], rng)], size)
    first, second = _anywhere(scene.things[0], rng), _anywhere(scene.things[1], rng)
    while not _related(first, second, scene.relation):
        first, second = _anywhere(scene.things[0], rng), _anywhere(scene.things[1], rng)
    return painted([first, second], size)


def film(told: Film, size: int, rng: random.Random) -> tuple[Pixels, ...]:
    """A film as images, (S, S, 3) each; things do not touch, if that can be had."""
    count = rng.randint(*FRAMES)
    for _ in range(TRIES):
        moments = [[*each] for each in zip(*(_moments(event, count, rng) for event in told.events), strict=True)]
        if not any(len(each) == 2 and each[0].touches(each[1]) for each in moments):
            break
    return tuple(painted(each, size) for each in moments)


def _anywhere(thing: Thing, rng: random.Random) -> Drawn:
    radius = RADII[thing.size]
    x, y = (rng.uniform(radius, 1 - radius) for _ in range(2))
    return Drawn(x, y, radius, COLOURS[thing.colour], thing.shape)


def _related(first: Drawn, second: Drawn, relation: str) -> bool:
    """Whether one thing is clearly left of another, or above it: more than anything else, and without touching."""
    right, down = second.x - first.x, second.y - first.y
    along, across = (right, down) if relation == "left of" else (down, right)
    return along > first.radius + second.radius + GAP and along > 1.5 * abs(across)


def _moments(event: Event, count: int, rng: random.Random) -> list[Drawn]:
    """What becomes of a thing, at so many moments."""
    (thing, action), times = event, np.linspace(0, 1, count).tolist()
    still = _anywhere(thing, rng)
    if action == "grows" or action == "shrinks":
        still = _anywhere(thing._replace(size="large"), rng)
        ends = (RADII["small"], RADII["large"]) if action == "grows" else (RADII["large"], RADII["small"])
        return [still._replace(radius=_between(*ends, time)) for time in times]
    if action.startswith("turns"):
        last = COLOURS[action.removeprefix("turns ")]
        mixed = [[round(_between(a, b, time)) for a, b in zip(still.colour, last, strict=True)] for time in times]
        return [still._replace(colour=tuple(colour)) for colour in mixed]
    where = PATHS[action.removeprefix("moves ")]
    ends = (still.radius, 1 - still.radius) if where in ("left", "top") else (1 - still.radius, still.radius)
    axis = "x" if where in ("left", "right") else "y"
    return [still._replace(**{axis: _between(*ends, time)}) for time in times]  # type: ignore[arg-type]


def _between(first: float, last: float, time: float) -> float:
    return first + (last - first) * time


def painted(things: list[Drawn], size: int) -> Pixels:
    """An image of things, the last in front, (S, S, 3)."""
    from PIL import Image, ImageDraw

    image = Image.new("RGB", (FINER * size, FINER * size), PAPER)
    draw = ImageDraw.Draw(image)
    for thing in things:
        _paint(draw, thing, FINER * size)
    return np.asarray(image.resize((size, size), Image.Resampling.BOX), np.uint8)


def _paint(draw: ImageDraw, thing: Drawn, side: int) -> None:
    x, y, r = (side * each for each in (thing.x, thing.y, thing.radius))
    if thing.shape == "circle":
        draw.ellipse((x - r, y - r, x + r, y + r), fill=thing.colour)
    elif thing.shape == "square":
        r *= 0.9
        draw.rectangle((x - r, y - r, x + r, y + r), fill=thing.colour)
    elif thing.shape == "triangle":
        draw.polygon([(x, y - r), (x - r, y + 0.85 * r), (x + r, y + 0.85 * r)], fill=thing.colour)
    else:
        thin = 0.34 * r
        draw.rectangle((x - r, y - thin, x + r, y + thin), fill=thing.colour)
        draw.rectangle((x - thin, y - r, x + thin, y + r), fill=thing.colour)
