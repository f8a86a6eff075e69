"""vit: an image as a sentence of patches, and which of them the heads look at.

Each image shows two things, one of them red. The shape of the red one is asked for: it has to be found, and then to be
recognised, among patches that know neither colours nor places when training begins.

B images, S side in pixels, N patches, P patch edge, L layers, H heads
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import max_pool2d

from glassformer.data.scenes import COLOURS as PAINTS
from glassformer.data.sources.scenes import PAPER, RADII, Drawn, painted
from glassformer.experiments.batches import Rng
from glassformer.experiments.charts import bars, heat, legend_below, panels
from glassformer.experiments.finding import Finding, Row, Rows
from glassformer.experiments.measures import accuracy, logits, mean_loss, parameters
from glassformer.experiments.trial import Trial, told_rates
from glassformer.looking import record
from glassformer.looking.style import BLUE, GREY, HEAT, ORANGE
from glassformer.models import EncoderOnly
from glassformer.models import vit as vision_transformer
from glassformer.tasks.images import ImageBatch, image_loss

CLAIM = "A Transformer reads an image as a sentence of patches; its heads look at the patches that matter."
ORDER = 180  # in the story

SIDE, SHAPES, COLOUR = 24, ("circle", "square", "cross"), "red"
OTHERS = tuple(colour for colour in PAINTS if colour != COLOUR)
PATCHES = (4, 8, 12)  # edges of patches; the first is looked into
PATIENCE = {4: 1, 8: 1, 12: 2}  # times as many steps: until curves have settled
RATES = (2e-3, 6e-3)
LAYERS, HEADS = 2, 2
ASKED, OTHER, EMPTY = KINDS = ("the red thing", "the other thing", "paper")
SHADES = {ASKED: ORANGE, OTHER: BLUE, EMPTY: GREY}


class Picture(NamedTuple):
    """An image (S, S, 3), and how much a head looks at each of its patches (S / P, S / P)."""

    head: str
    seen: NDArray[Any]
    spots: NDArray[Any]


Learned = tuple[list[Row], list[Picture]]


@dataclass(frozen=True)
class Images:
    """Pixels (B, 3, S, S), the shape of the red thing (B), and where (B, S, S) each of both things is."""

    pixels: Tensor
    labels: Tensor
    things: dict[str, Tensor]

    def batch(self, rows: Any = slice(None)) -> ImageBatch:
        """Some of the images."""
        return ImageBatch(self.pixels[rows], self.labels[rows])

    def covered(self, kind: str, patch: int) -> Tensor:
        """The pixels with paper over all patches that show a thing."""
        over = self.in_patches(kind, patch).repeat_interleave(patch, 1).repeat_interleave(patch, 2)  # (B, S, S)
        return torch.where(over[:, None], _numbers(np.full((1, 1, 1, 3), PAPER)), self.pixels)

    def in_patches(self, kind: str, patch: int) -> Tensor:
        """Which patches (B, S / P, S / P) show something of a thing."""
        return max_pool2d(self.things[kind][:, None].float(), patch)[:, 0] > 0


def run(trial: Trial, steps: int = 1000, pool: int = 3000, count: int = 300) -> Finding:
    """Vision Transformers with patches of several sizes learn to tell the shape of the red thing."""
    work = partial(_learned, steps=steps, pool=pool, count=count)
    tuned = trial.tuned("learning to see", work, PATCHES, RATES)
    rows = Rows({**row, "rate": each.rate} for each in tuned.values() for own, _ in each.results for row in own)
    pictures = tuned[PATCHES[0]].results[0][1]
    whole = rows.where(part="whole")
    right = whole.spreads("right", by="patch")
    without = {
        kind: whole.where(patch=PATCHES[0]).spreads(f"without {kind}", by="patch")[PATCHES[0]] for kind in KINDS[:2]
    }
    heads = rows.where(part="head", patch=PATCHES[0])
    strongest = Rows(
        max(heads.where(seed=each), key=lambda row: row[ASKED]) for each in dict.fromkeys(heads.column("seed"))
    )
    looks = {kind: strongest.spreads(kind, by="part")["head"] for kind in KINDS}
    area = {
        kind: whole.where(patch=PATCHES[0]).spreads(f"area of {kind}", by="patch")[PATCHES[0]] for kind in KINDS[:2]
    }
    facts: dict[str, float] = {
        **{f"right {patch}": right[patch] for patch in PATCHES},
        **{f"without {kind}": value for kind, value in without.items()},
        **{f"looks at {kind}": value for kind, value in looks.items()},
        **{f"area of {kind}": value for kind, value in area.items()},
    }
    told = ", ".join(f"{right[patch]:.0%} with patches of {patch} x {patch}" for patch in PATCHES)
    many = ", ".join(f"{PATIENCE[patch] * steps:,} steps with patches of {patch} pixels" for patch in PATCHES)
    return Finding(
        method=f"{pool:,} images of {SIDE} x {SIDE} pixels show a red thing and one of another colour; the shape of "
        f"the red one ({', '.join(SHAPES)}) is the label. Vision Transformers of {LAYERS} layers with {HEADS} heads "
        f"learned from 32 images a step, for {many}, {told_rates(RATES)}. "
        f"In {count} new images the attention of the class token was recorded (patches of {PATCHES[0]}), and the "
        "patches of one thing or of the other were covered with paper.",
        measured=f"Shapes are right in {told}; by chance in {1 / len(SHAPES):.0%}. The red thing covers "
        f"{area[ASKED]:.0%} of the patches and gets {looks[ASKED]:.0%} of the attention of the head that looks at it "
        f"most; the other thing covers {area[OTHER]:.0%} and gets {looks[OTHER]:.0%}. With the red thing covered "
        f"{without[ASKED]:.0%} are right, with the other thing covered {without[OTHER]:.0%}.",
        holds=right[PATCHES[0]].low > 0.8
        and looks[ASKED].low > 2 * area[ASKED].high
        and looks[ASKED].low > 2 * looks[OTHER].high
        and without[ASKED].high < 0.5
        and without[OTHER].low > 0.8 * right[PATCHES[0]].low,
        facts=facts,
        rows=rows,
        draw=lambda: _draw(rows, pictures),
        seeds=[each.seed for each in trial.seeds()],
    )


def _model(patch: int) -> EncoderOnly:
    return vision_transformer(len(SHAPES), SIDE, patch, width=32, heads=HEADS, layers=LAYERS, hidden=64)


def _learned(trial: Trial, patch: int, rate: float, steps: int, pool: int, count: int) -> tuple[float, Learned]:
    """A Vision Transformer that has learned, what its heads look at, and what it tells of covered images."""
    model = trial.begin(_model, patch)
    known = _images(np.random.default_rng([trial.seed, 3, 2**32]), pool)
    trial.learn("", model, partial(_some, known=known), image_loss, PATIENCE[patch] * steps, rate)
    new: Images = trial.new(_images, count=count)
    with record(model, keep="weights") as trace:
        right = accuracy(logits(model, new.pixels), new.labels)
    base: Row = {"seed": trial.seed, "patch": patch}
    shown = {kind: new.in_patches(kind, patch).flatten(1) for kind in KINDS[:2]}  # (B, N)
    row: Row = {**base, "part": "whole", "right": right, "parameters": parameters(model)}
    for kind, where in shown.items():
        row[f"without {kind}"] = accuracy(logits(model, new.covered(kind, patch)), new.labels)
        row[f"area of {kind}"] = where.float().mean().item()
    rows: list[Row] = [row]
    weights = trace.attention("encoder.self")[:, :, :, 0, 1:]  # (L, B, H, N): from the class token to the patches
    for layer, head in np.ndindex(LAYERS, HEADS):
        own = weights[layer, :, head] / weights[layer, :, head].sum(dim=-1, keepdim=True)
        looks = {kind: (own * where).sum(dim=-1).mean().item() for kind, where in shown.items()}
        looks[EMPTY] = (own * ~(shown[ASKED] | shown[OTHER])).sum(dim=-1).mean().item()
        rows.append({**base, "part": "head", "head": f"{layer + 1}.{head + 1}", **looks})
    best = max(rows[1:], key=lambda each: float(each[ASKED]))["head"]
    layer, head = (int(number) - 1 for number in best.split("."))
    spots = weights[layer, :, head].reshape(count, SIDE // patch, SIDE // patch)  # (B, S / P, S / P)
    seen = ((new.pixels.permute(0, 2, 3, 1) + 1) / 2).clamp(0, 1)
    pictures = [Picture(best, seen[number].numpy(), spots[number].numpy()) for number in range(3)]
    held_out = trial.held_out(_images, count=count)
    return mean_loss(model, held_out.batch(), image_loss), (rows, pictures)


def _numbers(pixels: Any) -> Tensor:
    """Pixels (B, S, S, 3) as a model sees them, (B, 3, S, S) from -1 to 1."""
    return torch.from_numpy(np.asarray(pixels) / 127.5 - 1).float().permute(0, 3, 1, 2)


def _images(rng: Rng, count: int) -> Images:
    """Images of two large things that do not touch, one of them red."""
    dice = random.Random(int(rng.integers(2**32)))
    pixels, labels, places = [], [], []
    for _ in range(count):
        asked, other = _thing(dice, COLOUR), _thing(dice, dice.choice(OTHERS))
        while asked.touches(other):
            asked, other = _thing(dice, COLOUR), _thing(dice, dice.choice(OTHERS))
        pixels.append(painted([asked, other], SIDE))
        labels.append(SHAPES.index(asked.shape))
        places.append([_box(asked), _box(other)])
    where = torch.from_numpy(np.array(places))  # (B, 2, S, S)
    return Images(_numbers(np.stack(pixels)), torch.tensor(labels), {ASKED: where[:, 0], OTHER: where[:, 1]})


def _thing(dice: random.Random, colour: str) -> Drawn:
    radius = RADII["large"]
    x, y = (dice.uniform(radius, 1 - radius) for _ in range(2))
    return Drawn(x, y, radius, PAINTS[colour], dice.choice(SHAPES))


def _box(thing: Drawn) -> Any:
    """The pixels (S, S) of the square around a thing."""
    middle = (np.arange(SIDE) + 0.5) / SIDE
    near = [np.abs(middle - place) < thing.radius for place in (thing.y, thing.x)]
    return near[0][:, None] & near[1]


def _some(rng: Rng, known: Images, count: int = 32) -> ImageBatch:
    """Some of the images that there are."""
    return known.batch(torch.from_numpy(rng.integers(len(known.labels), size=count)))


def _draw(rows: Rows, pictures: list[Picture]) -> Figure:
    figure, axes = panels(5, 11, 3.4, width_ratios=[0.9, 1.5, 0.8, 0.8, 0.8])
    quality, looks, *places = axes
    right = rows.where(part="whole").spreads("right", by="patch")
    bars(quality, PATCHES, {"right": [right[patch] for patch in PATCHES]}, {"right": BLUE}, "{:.2f}")
    quality.set(title="By size of patch", xlabel="pixels of an edge", ylabel="right", ylim=(0, 1.08))
    heads = rows.where(part="head", patch=PATCHES[0])
    names = [*dict.fromkeys(heads.column("head"))]
    bars(looks, names, {kind: [heads.spreads(kind, by="head")[name] for name in names] for kind in KINDS}, SHADES)
    looks.set(title="Where heads look", xlabel="layer.head", ylabel="attention of the class token")
    places[0].set_title(f"What head {pictures[0].head} looks at")
    for place, (_, seen, spots) in zip(places, pictures, strict=True):
        place.imshow(seen, extent=(0, 1, 0, 1))
        heat(place, spots, extent=(0, 1, 0, 1), alpha=0.6, cmap=HEAT)
        place.set(xticks=[], yticks=[], anchor="N")
        place.spines[:].set_visible(False)
    legend_below(figure, looks, columns=3)
    return figure
