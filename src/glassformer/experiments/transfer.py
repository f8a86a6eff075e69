"""transfer: what is learned from texts without labels, and what it is worth when there are few labels.

Words belong to topics, which nobody names. A model that guesses hidden words finds out which words go together. Then
the topic of a text is asked for, and only a few texts have labels: most words of the test were never seen with one.

B texts, T length
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from glassformer.experiments.batches import Rng, texts
from glassformer.experiments.charts import bands, bars, legend_below, log_ticks, mark_level, panels
from glassformer.experiments.finding import Finding, Row, Rows, Spread
from glassformer.experiments.measures import accuracy, logits, mean_loss, parameters
from glassformer.experiments.small import Small
from glassformer.experiments.trial import Trial, told_rates
from glassformer.looking.style import BLUE, GREEN, GREY, ORANGE
from glassformer.models import EncoderOnly
from glassformer.parts.lora import adapt
from glassformer.parts.schemes import learned
from glassformer.tasks.classification import classification_loss
from glassformer.tasks.gathering import TextBatch, TokenBatch, token_loss
from glassformer.tasks.masked import chosen

CLAIM = (
    "What is learned from texts without labels carries over to a task with few labels; "
    "and LoRA learns the task as well as all weights do, with a fraction of the parameters."
)
ORDER = 170  # in the story

TOPICS, WORDS, HALF = 6, 40, 4  # topics, words of each, words of each half of a text
FIRST, MASK = TOPICS * WORDS, TOPICS * WORDS + 1  # the token in front, the mask
SHAPE = Small(MASK + 1, width=32, heads=4, layers=2, positions=learned, length=2 * HALF + 1)
RANK, TARGETS = 4, ("query", "key", "value", "output", "expand")
BASE_RATE, RATES = 5e-3, (1e-3, 3e-3, 1e-2)
SCRATCH, HEAD, LORA, FULL = WAYS = ("from scratch", "head only", f"LoRA, rank {RANK}", "all weights")
COLOURS = dict(zip(WAYS, (ORANGE, GREY, GREEN, BLUE), strict=True))
NEARLY = 0.05  # of the texts: so much worse is still as well
Weights = dict[str, Any]  # of a model, by name


def run(
    trial: Trial, first: int = 1200, steps: int = 240, labels: Sequence[int] = (24, 96), count: int = 400
) -> Finding:
    """A model guesses hidden words; then it learns to tell topics from few labels, in several ways."""
    seeds = trial.seeds()
    bases = trial.map("guessing hidden words", _base, [(each, first) for each in seeds])
    weights = {each.seed: base for each, (base, _) in zip(seeds, bases, strict=True)}
    work = partial(_taught, bases=weights, steps=steps, count=count)
    tuned = trial.tuned("learning from labels", work, [(way, few) for way in WAYS for few in labels], RATES)
    rows = Rows({**row, "rate": each.rate} for each in tuned.values() for row in each.results)
    right = rows.spreads("right", by=("way", "labels"))
    size = {way: float(rows.where(way=way)[0]["trained"]) for way in WAYS}
    guessed = Spread(loss for _, loss in bases)
    few, many = labels[0], labels[-1]
    behind = {each: _apart(right[FULL, each], right[LORA, each]) for each in labels}
    ahead = {each: _apart(right[FULL, each], right[SCRATCH, each]) for each in labels}
    facts: dict[str, float] = {
        "guessed": guessed,
        **{f"{way}, {each} labels": value for (way, each), value in right.items()},
        **{f"trained {way}": value for way, value in size.items()},
        **{f"LoRA behind, {each} labels": value for each, value in behind.items()},
        **{f"ahead of scratch, {each} labels": value for each, value in ahead.items()},
    }
    told = "; ".join(f"{way} {right[way, few]:.0%} and {right[way, many]:.0%}" for way in WAYS)
    carried = ahead[few].low > 0.1 and right[FULL, few].low > right[SCRATCH, few].high
    as_well = max(each.high for each in behind.values()) < NEARLY
    return Finding(
        method=f"A text has two halves of {HALF} words, each half of one of {TOPICS} topics with {WORDS} words. An "
        f"encoder of 2 layers and {parameters(SHAPE.classifier(TOPICS)):,} parameters guessed hidden words for {first} "
        "steps, without labels. Then the topic of the first half was asked for, with few labelled texts, in four ways: "
        "from scratch, the head alone, LoRA on every matrix inside the blocks and the head, all weights; each for "
        f"{steps} steps and {told_rates(RATES)} (which has {count} labelled texts of its own, for this choice only). "
        f"Right is the share of {count} new texts. As well is at most {NEARLY:.0%} of the texts worse, at every "
        "seed; carried over is at least 10% of the texts more right than from scratch, at every seed.",
        measured=f"Hidden words are guessed with a loss of {guessed:.2f} nats (the words of a topic alone: "
        f"{np.log(WORDS):.2f}; all words: {np.log(FIRST):.2f}). With {few} and {many} labels are right: {told}. LoRA "
        f"learns {size[LORA]:,.0f} numbers, all weights are {size[FULL]:,.0f}. "
        + ("Pretraining carries over" if carried else "Pretraining does not carry over by 10% at every seed")
        + f" (by {ahead[few]:.0%} with {few} labels, {ahead[many]:.0%} with {many}), and LoRA "
        + ("learns as well as all weights" if as_well else "does not learn as well as all weights at every seed")
        + f" ({LORA} less all weights: {_apart(right[LORA, few], right[FULL, few]):.0%} with {few} labels, "
        f"{_apart(right[LORA, many], right[FULL, many]):.0%} with {many}).",
        holds=carried and as_well and size[LORA] < 0.5 * size[FULL],
        facts=facts,
        rows=rows,
        draw=lambda: _draw(rows, labels, size),
        seeds=[each.seed for each in seeds],
    )


def _apart(one: Spread, other: Spread) -> Spread:
    """How much more one has, seed by seed."""
    return Spread(a - b for a, b in zip(one.values, other.values, strict=True))


def _base(trial: Trial, steps: int) -> tuple[Weights, float]:
    """The encoder's weights of a model that has guessed hidden words, and its loss on new ones."""
    model = trial.begin(SHAPE.reader)
    trial.learn("", model, _hidden, token_loss, steps, BASE_RATE)
    return model.encoder.state_dict(), mean_loss(model, trial.new(_hidden, count=400), token_loss)


def _taught(
    trial: Trial, variant: tuple[str, int], rate: float, bases: dict[int, Weights], steps: int, count: int
) -> tuple[float, Row]:
    """A classifier that has learned from so many labels in one of the ways."""
    way, few = variant
    model: EncoderOnly = trial.begin(SHAPE.classifier, TOPICS)
    if way != SCRATCH:
        model.encoder.load_state_dict(bases[trial.seed])
    if way == LORA:
        adapt(model, rank=RANK, alpha=2.0 * RANK, targets=TARGETS)
    if way == HEAD:
        model.encoder.requires_grad_(False)
    model.head.requires_grad_(True)
    known = _labelled(np.random.default_rng([trial.seed, 3, 2**32]), few)
    trial.learn("", model, partial(_some, known=known), classification_loss, steps, rate)
    new, held_out = trial.new(_labelled, count=count), trial.held_out(_labelled, count=count)
    right = accuracy(logits(model, new.text), new.labels)
    row = {"way": way, "labels": few, "seed": trial.seed, "right": right, "trained": parameters(model)}
    return mean_loss(model, held_out, classification_loss), row


def _texts(rng: Rng, count: int) -> tuple[Any, Any]:
    """Texts (B, T) whose halves are each of one topic, and the topic of the first half (B)."""
    topics = rng.integers(TOPICS, size=(count, 2, 1))
    words = WORDS * topics + rng.integers(WORDS, size=(count, 2, HALF))
    front = np.full((count, 1), FIRST)
    return np.concatenate((front, words.reshape(count, -1)), axis=1), topics[:, 0, 0]


def _hidden(rng: Rng, count: int = 64) -> TokenBatch:
    """Texts in each of which two words are masked, and asked for."""
    rows, _ = _texts(rng, count)
    asked = chosen(rows != FIRST, 2 / (2 * HALF), rng)
    text, labels, places = map(torch.from_numpy, (np.where(asked, MASK, rows), rows, asked))
    return TokenBatch(text, labels, places, None, text.numel(), int(asked.sum()), torch.ones_like(places))


def _labelled(rng: Rng, count: int) -> TextBatch:
    """Texts with their labels."""
    return texts(*_texts(rng, count))


def _some(rng: Rng, known: TextBatch, count: int = 24) -> TextBatch:
    """Some of the labelled texts that there are."""
    rows = torch.from_numpy(rng.choice(len(known.text), size=count, replace=False))
    return texts(known.text[rows], known.labels[rows])


def _draw(rows: Rows, labels: Sequence[int], size: dict[str, float]) -> Figure:
    figure, (quality, cost) = panels(2, 9.5, 3.7, width_ratios=[1.2, 1])
    bands(quality, rows, "labels", "right", "way", COLOURS)
    log_ticks(quality, labels)
    mark_level(quality, 1 / TOPICS, "by chance")
    quality.set(title="Few labels", xlabel="texts with a label", ylabel="new texts right", ylim=(0, 1.05))
    bars(cost, WAYS, {"numbers that learn": [size[way] for way in WAYS]}, {"numbers that learn": BLUE}, "{:,.0f}", True)
    cost.set(title="What it costs", xlabel="numbers that learn")
    cost.margins(x=0.2)
    legend_below(figure, quality, len(WAYS))
    return figure
