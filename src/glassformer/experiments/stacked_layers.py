"""stacked-layers: each layer of a stack looks for something else, because it reads what the layer below has found.

    b 7 e 2 k 5   k 5 b 7 e …

Letters have digits, and later each letter is asked for its digit. A digit does not say whose it is: first it has to
look at the letter before it, then the letter that asks can find it. That is two looks, one upon the other.

B texts, T length, L layers, H heads
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from glassformer.experiments.batches import Rng, windows
from glassformer.experiments.charts import bars, legend_below, panels
from glassformer.experiments.finding import Finding, Row, Rows, Spread
from glassformer.experiments.measures import accuracy, logits, mean_loss, parameters
from glassformer.experiments.small import Small
from glassformer.experiments.trial import Trial, told_rates
from glassformer.looking import intervene, record
from glassformer.looking.style import BLUE, GREY, ORANGE
from glassformer.models import DecoderOnly
from glassformer.parts.schemes import rotary
from glassformer.tasks.gathering import TokenBatch, token_loss

CLAIM = "Each layer of a stack gets a chance to explore and learn different facets of attention."
ORDER = 115  # in the story

KINDS, PAIRS, HEADS = 12, 4, 4  # letters and digits there are; of each in a text; heads of a layer
WIDTHS = {1: 48, 2: 32}  # by layers: one layer is wider, so that it has as many parameters as two
RATES = (5e-3, 1e-2)
OWNER, ANSWER = FACETS = ("whose digit", "the answer")
LENGTH = 4 * PAIRS - 1
DIGITS = torch.arange(1, 2 * PAIRS, 2)  # where digits stand
QUESTIONS = torch.arange(2 * PAIRS, LENGTH, 2)  # where letters ask
COLOURS = {OWNER: BLUE, ANSWER: ORANGE}
Spreads = dict[tuple[int, str], Spread]  # by layer, or by how many there are, and facet


@dataclass(frozen=True)
class Asked:
    """Texts as a batch, and which of the pairs (B, PAIRS) each question asks for."""

    batch: TokenBatch
    order: Tensor


def run(trial: Trial, steps: int = 350, count: int = 300) -> Finding:
    """Stacks of one and two layers learn whose digits are whose, and what each layer looks at is recorded."""
    tuned = trial.tuned("learning", partial(_learned, steps=steps, count=count), [*WIDTHS], RATES)
    rows = Rows({**row, "rate": each.rate} for each in tuned.values() for rows in each.results for row in rows)
    whole, looks, without = (rows.where(part=part) for part in ("whole", "looks", "without"))
    right = whole.spreads("right", by=("layers", "facet"))
    look = looks.where(layers=2).spreads("attention", by=("layer", "facet"))
    lost = without.where(layers=2).spreads("right", by=("layer", "facet"))
    facts: dict[str, float] = {
        **{f"right {layers} {facet}": right[layers, facet] for layers in WIDTHS for facet in FACETS},
        **{f"looks {layer} {facet}": value for (layer, facet), value in look.items()},
        **{f"without {layer} {facet}": value for (layer, facet), value in lost.items()},
        **{f"parameters {layers}": whole.where(layers=layers)[0]["parameters"] for layers in WIDTHS},
    }
    return Finding(
        method=f"Texts give {PAIRS} letters a digit each, then ask for the digits in another order. At each digit the "
        "letter that it belongs to was asked for (whose digit: the letter just before), at each question the digit of "
        f"the letter (the answer). Decoders of 1 and 2 layers with {HEADS} heads each learned for {steps} steps, "
        f"{told_rates(RATES)}. In {count} new texts the attention of the strongest head of each layer was recorded, "
        "from digits to their letters and from questions to their answers; and all attention of a layer was taken "
        "away.",
        measured=f"Whose digit it is, one layer tells in {right[1, OWNER]:.0%} and two in {right[2, OWNER]:.0%}; the "
        f"answer, which takes two looks, one layer of {facts['parameters 1']:,.0f} parameters gives in "
        f"{right[1, ANSWER]:.0%}, two of {facts['parameters 2']:,.0f} together in {right[2, ANSWER]:.0%}. "
        f"Of the two, the first layer gives its letter {look[1, OWNER]:.0%} of a digit's "
        f"attention and the answer {look[1, ANSWER]:.0%} of a question's; the second layer gives the answer "
        f"{look[2, ANSWER]:.0%}. Without the attention of the first layer {lost[1, ANSWER]:.0%} of the answers are "
        f"right, without that of the second {lost[2, ANSWER]:.0%}.",
        holds=right[2, ANSWER].low > 0.9
        and right[1, ANSWER].high < 0.6
        and facts["parameters 1"] >= facts["parameters 2"]
        and look[1, OWNER].low > 0.5
        and look[1, ANSWER].high + 0.3 < look[2, ANSWER].low
        and max(lost[layer, ANSWER].high for layer in (1, 2)) < 0.6,
        facts=facts,
        rows=rows,
        draw=lambda: _draw(right, look, lost),
        seeds=[each.seed for each in trial.seeds()],
    )


def _model(layers: int) -> DecoderOnly:
    return Small(2 * KINDS, WIDTHS[layers], HEADS, layers, rotary, length=LENGTH).language_model()


def _learned(trial: Trial, layers: int, rate: float, steps: int, count: int) -> tuple[float, list[Row]]:
    """A stack that has learned: what is right, what its layers look at, and what is right without each of them."""
    model = trial.begin(_model, layers)
    trial.learn("", model, lambda rng: _texts(rng).batch, token_loss, steps, rate)
    new, known = trial.new(_texts, count=count), {"seed": trial.seed, "layers": layers}
    rows: list[Row] = [
        {**known, "part": "whole", "facet": facet, "right": right, "parameters": parameters(model)}
        for facet, right in _right(model, new).items()
    ]
    for facet, heads in _looks(model, new).items():
        for layer, strongest in enumerate(heads.amax(dim=1).tolist(), start=1):
            rows.append({**known, "part": "looks", "layer": layer, "facet": facet, "attention": strongest})
    for layer in range(layers):
        with intervene(model) as edit:
            edit.zero(f"decoder.{layer}.self.heads")
            left = _right(model, new)
        rows += [{**known, "part": "without", "layer": layer + 1, "facet": f, "right": r} for f, r in left.items()]
    return mean_loss(model, trial.held_out(_texts, count=count).batch, token_loss), rows


def _texts(rng: Rng, count: int = 64) -> Asked:
    """Letters with their digits, then the letters in another order, each followed by its digit."""
    letters = rng.permuted(np.tile(np.arange(KINDS), (count, 1)), axis=1)[:, :PAIRS]  # (B, PAIRS)
    digits = KINDS + rng.integers(KINDS, size=(count, PAIRS))
    order = rng.permuted(np.tile(np.arange(PAIRS), (count, 1)), axis=1)
    told = np.stack((letters, digits), axis=-1)  # (B, PAIRS, 2)
    again = np.take_along_axis(told, order[:, :, None], axis=1)
    batch = windows(np.concatenate((told, again), axis=1).reshape(count, -1))
    labels, asked = batch.labels.clone(), torch.zeros_like(batch.label_mask)
    labels[:, DIGITS] = batch.text[:, DIGITS - 1]
    asked[:, DIGITS] = asked[:, QUESTIONS] = True
    batch = replace(batch, labels=labels, label_mask=asked, targets=int(asked.sum()))
    return Asked(batch, torch.from_numpy(order))


def _right(model: DecoderOnly, new: Asked) -> dict[str, float]:
    """How much of each facet a model gets right."""
    scores = logits(model, new.batch.text)
    places = {OWNER: DIGITS, ANSWER: QUESTIONS}
    return {facet: accuracy(scores[:, at], new.batch.labels[:, at]) for facet, at in places.items()}


def _looks(model: DecoderOnly, new: Asked) -> dict[str, Tensor]:
    """How much attention each head (L, H) gives to whose a digit is, and to the answer."""
    with record(model, keep="weights") as trace:
        logits(model, new.batch.text)
    weights = trace.attention("decoder.self").transpose(1, 2)  # (L, H, B, T, T)
    texts = torch.arange(len(new.order))[:, None]
    reached = {OWNER: (DIGITS, DIGITS - 1), ANSWER: (QUESTIONS, DIGITS[new.order])}
    return {facet: weights[:, :, texts, *both].mean(dim=(2, 3)) for facet, both in reached.items()}


def _draw(right: Spreads, look: Spreads, lost: Spreads) -> Figure:
    figure, (quality, attention, without) = panels(3, 10.5, 3.6)
    for axes, found in ((quality, right), (attention, look), (without, lost)):
        bars(axes, (1, 2), {facet: [found[number, facet] for number in (1, 2)] for facet in FACETS}, COLOURS)
        axes.set_ylim(0, 1.05)
    for axes in (quality, without):
        axes.axhline(1 / PAIRS, color=GREY, linestyle=":", label=f"one of {PAIRS} digits")
    quality.set(title="What a stack can tell", xlabel="layers", ylabel="right")
    attention.set(title="Where two layers look", xlabel="layer", ylabel="attention of its strongest head")
    without.set(title="Without the attention of a layer", xlabel="layer that is taken away", ylabel="right")
    legend_below(figure, quality, columns=3)
    return figure
