"""across-modalities: patches of a picture and frames of a sound that read the words of a text.

An encoder reads the words. Learned queries, one for each patch of the picture or each frame of the sound, pass decoder
blocks without a causal mask: they look at each other, and by cross attention at the words. A linear layer makes pixels
or a spectrum of each. The pictures are two coloured shapes, the sounds vowels of two formants: no photograph is made,
and no human voice.

B batch, S words, N parts (patches, frames), F numbers of a part, M units that are judged, D model width, H heads
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor, nn

from glassformer.experiments.batches import Rng
from glassformer.experiments.charts import bars, heat
from glassformer.experiments.described import (
    FRAMES,
    HARMONICS,
    LENGTH,
    LETTERS,
    NEW_PAIRS,
    NEW_THINGS,
    PATCH,
    PITCH,
    RATE,
    SAMPLES,
    SECOND,
    SHAPES,
    SIDE,
    SPOKEN,
    VOWELS,
    WORDS,
    Described,
    drawings,
    heard,
    joined,
    sayings,
    seen,
    things,
    wave,
)
from glassformer.experiments.finding import Finding, Rows, Spread
from glassformer.experiments.measures import logits, mean_loss, parameters
from glassformer.experiments.trial import Trial, told_rates
from glassformer.looking import record
from glassformer.looking.style import BLUE, HEAT, ORANGE, SKY
from glassformer.models.initialise import initialise
from glassformer.parts.builder import BlockBuilder
from glassformer.parts.embeddings import Embedding
from glassformer.parts.feedforward import gelu
from glassformer.parts.patches import grid_waves
from glassformer.parts.positions import Sinusoidal
from glassformer.parts.schemes import Positions, relative, sinusoidal
from glassformer.tasks.protocol import Learner

CLAIM = "Cross attention also leads from one modality to another: it serves text to image and text to speech."
ORDER = 190  # in the story

WIDTH, HEADS, LAYERS = 32, 4, 1
RATES = (7e-3, 1.5e-2)
CROSS, MEAN = READS = ("cross attention to all words", "to their mean only")
COLOURS = {CROSS: BLUE, MEAN: ORANGE}
PICTURES, SOUNDS = "pictures", "sounds"
MOST = 0.75  # of the parts, at least, if parts are to be said to read their own words


@dataclass(frozen=True)
class Kind:
    """What is made of texts: how it is drawn and judged, its words, its parts, and how its texts have positions."""

    draw: Callable[..., Described]
    judge: Callable[[Tensor], Tensor]  # parts (B, N, F) to units (B, M)
    words: tuple[str, ...]
    parts: int
    numbers: int
    positions: Positions
    empty: int  # the unit of paper, or of silence
    steps: int

    def queries(self) -> Tensor:
        """What queries (N, D) begin with: waves over rows and columns, or over time; near ones are alike."""
        if self.judge is seen:
            waves = grid_waves(math.isqrt(self.parts), WIDTH)[1:]
            return waves / waves.std()
        return Sinusoidal(WIDTH).table[: self.parts].clone()


def _heard(parts: Tensor) -> Tensor:
    """Which vowel each frame (B, N, F) is once it has been made a sound, (B, N)."""
    return heard(wave(parts))


KINDS = {
    PICTURES: Kind(drawings, seen, WORDS, (SIDE // PATCH) ** 2, 3 * PATCH**2, relative, len(things()) - 1, 800),
    SOUNDS: Kind(sayings, _heard, LETTERS, FRAMES, HARMONICS, sinusoidal, len(VOWELS), 200),
}


class Maker(nn.Module):
    """Words to the parts of a picture or a sound."""

    def __init__(self, kind: Kind, reads: str) -> None:
        super().__init__()
        builder = BlockBuilder(WIDTH, HEADS, 2 * WIDTH, activation=gelu)
        sizes = builder.sizes(max(SECOND.stop, LENGTH))
        embedding = Embedding(len(kind.words), WIDTH, math.sqrt(WIDTH), kind.positions.embedding(sizes))
        self.reads = reads
        self.encoder = builder.encoder(embedding, LAYERS, kind.positions.attention(sizes, True))
        self.queries = nn.Parameter(kind.queries())  # (N, D)
        self.decoder = nn.ModuleList(builder.decoder_blocks(LAYERS, cross=True))
        self.norm, self.head = builder.make_norm(), nn.Linear(WIDTH, kind.numbers)
        initialise(self.encoder, self.decoder)

    def hidden(self, words: Tensor) -> Tensor:
        """Words (B, S) to parts that have read them, (B, N, D); no part comes before another, so there is no mask."""
        memory = self.encoder(words)  # (B, S, D)
        if self.reads == MEAN:
            memory = memory.mean(dim=1, keepdim=True)  # (B, 1, D): nothing is left to choose from
        x = self.queries.expand(len(words), -1, -1)  # (B, N, D)
        for block in self.decoder:
            x = block(x, memory=memory)
        return self.norm(x)  # type: ignore[no-any-return]

    def forward(self, words: Tensor) -> Tensor:
        """Words (B, S) to ink or loudness, (B, N, F)."""
        return self.head(self.hidden(words))  # type: ignore[no-any-return]


def squared_loss(learner: Learner, batch: Described) -> Tensor:
    """The summed squared error of all parts."""
    made = learner.head(learner.hidden(batch.words))  # (B, N, F)
    return (made - batch.values).square().sum()  # type: ignore[no-any-return]


class Example(NamedTuple):
    """Words (S), parts as they should be and as they were made (N, F each), and what each part reads (N, S)."""

    words: list[str]
    true: NDArray[Any]
    made: NDArray[Any]
    weights: NDArray[Any]


Result = tuple[dict[str, float], list[Example]]


def run(trial: Trial, steps: int | None = None, pool: int = 3000, count: int = 300) -> Finding:
    """Makers of pictures and of sounds learn, and are judged by texts whose combinations are new to them."""
    variants = [(kind, reads) for kind in KINDS for reads in READS]
    work = partial(_learned, steps=steps, pool=pool, count=count)
    tuned = trial.tuned("learning to draw and to speak", work, variants, RATES)
    seeds = [each.seed for each in trial.seeds()]
    rows = Rows(
        {"kind": kind, "reads": reads, "rate": found.rate, "seed": seed, **numbers}
        for (kind, reads), found in tuned.items()
        for seed, (numbers, _) in zip(seeds, found.results, strict=True)
    )
    right, whole, known = (rows.spreads(name, by=("kind", "reads")) for name in ("right", "whole", "known"))
    own, given, chance = (rows.where(reads=CROSS).spreads(name, by="kind") for name in ("own", "given", "chance"))
    facts: dict[str, float] = {f"right {kind}, {reads}": right[kind, reads] for kind, reads in variants}
    facts |= {f"whole {kind}, {reads}": whole[kind, reads] for kind, reads in variants}
    facts |= {f"known {kind}, {reads}": known[kind, reads] for kind, reads in variants}
    facts |= {f"own {kind}": own[kind] for kind in KINDS} | {f"given {kind}": given[kind] for kind in KINDS}
    made = {kind: _made(right, kind) for kind in KINDS}
    looks = {kind: own[kind].low > MOST for kind in KINDS}
    examples = {kind: tuned[kind, CROSS].results[0][1] for kind in KINDS}
    things_of = " or ".join(f"a {WORDS[2 + c]} {SHAPES[s]}" for c, s in NEW_THINGS)
    pairs = ", ".join(f"{LETTERS[one]}{LETTERS[other]}" for one, other in NEW_PAIRS)
    return Finding(
        method=f'Captions such as "{" ".join(examples[PICTURES][0].words)}" and pictures of {SIDE} x {SIDE} pixels; '
        f'texts of {SPOKEN} vowels, each long if ":" comes after it, and sounds of {FRAMES} frames of '
        f"{1000 * SAMPLES // RATE} ms, {HARMONICS} harmonics of {PITCH} Hz in each, loudest near two formants. An "
        f"encoder of {LAYERS} layer, {WIDTH} wide, reads the words; {KINDS[PICTURES].parts} queries for patches, or "
        f"{FRAMES} for frames, pass {LAYERS} decoder block without a causal mask and a linear layer. They learned from "
        f"{pool:,} examples for {_steps(PICTURES, steps)} and {_steps(SOUNDS, steps)} steps by squared error, "
        f"{told_rates(RATES)}. Beside them the same models learned whose cross attention reads the mean of the words' "
        f"vectors only. All is judged by {count} new texts each: captions of which no training picture shows either "
        f"thing ({things_of}), sayings with a pair of vowels of which training has none ({pairs}). A thing or a "
        "vowel is right if it is nearer to its own template than to all others, vowels in the waveform.",
        measured="Things of a colour and a shape never seen together are drawn right in "
        f"{_told(right, PICTURES)}, whole pictures in {_told(whole, PICTURES)}. In sayings with a pair of vowels never "
        f"seen, frames are right in {_told(right, SOUNDS)}, whole sounds in {_told(whole, SOUNDS)}. The word that is "
        "read most is one of those that describe "
        f"the part in {own[PICTURES]:.0%} of the patches of things ({chance[PICTURES]:.0%} by chance) and in "
        f"{own[SOUNDS]:.0%} of the frames of vowels ({chance[SOUNDS]:.0%} by chance); {given[PICTURES]:.0%} and "
        f"{given[SOUNDS]:.0%} of the attention go to such words. {_judged(made, looks)}",
        holds=all(made.values()),  # which words are read is told, and is no part of the claim
        facts=facts,
        rows=rows,
        draw=lambda: _draw(right, own, chance, examples),
        seeds=seeds,
    )


def _made(right: dict[Any, Spread], kind: str) -> bool:
    """Whether new things are made of words, at every seed, and clearly less often of the words' mean."""
    return right[kind, CROSS].low > 0.9 and right[kind, CROSS].low > right[kind, MEAN].high + 0.2


def _told(spreads: dict[Any, Spread], kind: str) -> str:
    return f"{spreads[kind, CROSS]:.0%} with cross attention to the words and {spreads[kind, MEAN]:.0%} with their mean"


def _judged(made: dict[str, bool], looks: dict[str, bool]) -> str:
    """What holds, and what does not, kind by kind."""
    said = [
        f"{kind} are {'' if made[kind] else 'not '}made of words by it, and their parts "
        f"{'read' if looks[kind] else 'do not always read'} their own words most"
        for kind in KINDS
    ]
    return f"So {'; '.join(said)}. Shapes and vowels are all that is made, no photograph and no human voice."


def _steps(kind: str, steps: int | None) -> int:
    return KINDS[kind].steps if steps is None else steps


def _learned(
    trial: Trial, variant: tuple[str, str], rate: float, steps: int | None, pool: int, count: int
) -> tuple[float, Result]:
    """The loss on validation; what is right of new texts, what is read, and some examples."""
    name, reads = variant
    kind = KINDS[name]
    model = trial.begin(Maker, kind, reads)
    known = kind.draw(np.random.default_rng([trial.seed, 3, 2**32]), count=pool)
    trial.learn("", model, partial(_some, known=known), squared_loss, _steps(name, steps), rate)
    new: Described = trial.new(kind.draw, count=count, new=True)
    held_out: Described = trial.held_out(kind.draw, count=count)
    with record(model, keep="decoder.*.cross") as trace:
        made = logits(model, new.words)  # (B, N, F)
    weights = trace.attention("decoder.cross")[-1].mean(dim=1)  # (B, N, S): of all heads
    numbers = {
        **_right(kind, made, new),
        "known": _right(kind, logits(model, held_out.words), held_out)["right"],
        "parameters": parameters(model),
        **(_looks(weights, new.own) if reads == CROSS else {}),
    }
    examples = [
        Example(
            [kind.words[word] for word in new.words[row].tolist()],
            *(each[row].numpy() for each in (new.values, made, weights)),
        )
        for row in range(2)
    ]
    return mean_loss(model, held_out, squared_loss), (numbers, examples)


def _right(kind: Kind, made: Tensor, batch: Described) -> dict[str, float]:
    """How many things or vowels are right, and how many pictures or sounds with all that is in them."""
    right = kind.judge(made) == batch.units  # (B, M)
    there = batch.units != kind.empty
    return {"right": right[there].float().mean().item(), "whole": right.all(dim=1).float().mean().item()}


def _looks(weights: Tensor, own: Tensor) -> dict[str, float]:
    """Of parts (B, N, S) that words describe: how many read one of these most, how much, and how many by chance."""
    there = own.any(dim=-1)  # (B, N)
    most = own.gather(2, weights.argmax(dim=-1, keepdim=True))[..., 0]  # (B, N)
    shares = {"own": most.float(), "given": (weights * own).sum(dim=-1), "chance": own.float().mean(dim=-1)}
    return {name: each[there].mean().item() for name, each in shares.items()}


def _some(rng: Rng, known: Described, count: int = 32) -> Described:
    """Some of the examples that there are."""
    rows = torch.from_numpy(rng.integers(len(known.words), size=count))
    return Described(known.words[rows], known.values[rows], known.own[rows], known.units[rows])


def _draw(
    right: dict[Any, Spread], own: dict[Any, Spread], chance: dict[Any, Spread], examples: dict[str, list[Example]]
) -> Figure:
    figure = Figure(figsize=(11.5, 7.4), layout="constrained")
    parts: Any = figure.subfigures(3, 1, height_ratios=[1, 0.62, 1.1])
    top, *others = parts
    quality, looks = top.subplots(1, 2)
    names = ["things", "frames of vowels"]
    bars(quality, names, {reads: [right[kind, reads] for kind in KINDS] for reads in READS}, COLOURS, "{:.2f}")
    quality.set(title="Right, of what was never seen together", ylabel="right", ylim=(0, 1.15))
    quality.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=2)
    shares = {"reads its own words most": [own[kind] for kind in KINDS], "by chance": [chance[kind] for kind in KINDS]}
    bars(
        looks,
        ["patches of things", "frames of vowels"],
        shares,
        {"reads its own words most": BLUE, "by chance": SKY},
        "%.2f",
    )
    looks.set(title="Which word a part reads most", ylabel="share of parts", ylim=(0, 1.15))
    looks.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=2)
    _draw_picture(others[0], examples[PICTURES][0])
    _draw_sound(others[1], examples[SOUNDS][0])
    return figure


def _draw_picture(figure: Any, example: Example) -> None:
    """A caption, its picture, the picture that was made, and what each word gives to each patch."""
    told = [number for number, word in enumerate(example.words) if word not in ("a", "and")]
    axes = figure.subplots(1, 2 + len(told))
    figure.suptitle(f"{' '.join(example.words)}", fontsize=10)
    for place, title, parts in zip(axes, ("true", "made"), (example.true, example.made), strict=False):
        place.imshow((1 - joined(torch.from_numpy(parts)[None])[0]).clamp(0, 1).numpy())
        place.set(title=title)
    for place, number in zip(axes[2:], told, strict=True):
        side = math.isqrt(len(example.weights))
        heat(place, example.weights[:, number].reshape(side, side), cmap=HEAT, vmin=0, vmax=1)
        place.set(title=example.words[number])
    for place in axes:
        place.set(xticks=[], yticks=[])
        place.grid(visible=False)


def _draw_sound(figure: Any, example: Example) -> None:
    """A saying, its spectrum, the spectrum and the waveform that were made, and which letter each frame reads."""
    figure.suptitle(f"{' '.join(example.words)}", fontsize=10)
    true, made, reads, sound = figure.subplots(1, 4, width_ratios=[1, 1, 1, 1.2])
    for axes, title, parts in ((true, "true", example.true), (made, "made", example.made)):
        heat(
            axes, parts.T, cmap=HEAT, origin="lower", aspect="auto", vmin=0, vmax=1, extent=(0, FRAMES, 0, RATE / 2000)
        )
        axes.set(title=f"{title} spectrum", xlabel="frame", ylabel="kHz")
    heat(reads, example.weights.T, cmap=HEAT, aspect="auto", vmin=0, vmax=1)
    reads.set_yticks(range(len(example.words)), example.words)
    reads.set(title="which letter a frame reads", xlabel="frame")
    samples = wave(torch.from_numpy(example.made)[None])[0].numpy()
    sound.plot(np.arange(len(samples)) / RATE, samples, color=BLUE, marker="", linewidth=0.5)
    sound.set(title="made waveform", xlabel="seconds", yticks=[])
