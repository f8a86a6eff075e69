"""causal-mask: without the mask, training leaks the future.

A model that should say which token comes next, and sees it, learns to copy it: nothing is easier, and nothing is
learned. When it has to write by itself there is no next token to copy.

B sequences, T length
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from matplotlib.figure import Figure

from glassformer.experiments.batches import COUNTED, MODULUS, Rng, counting
from glassformer.experiments.charts import bands, mark_level, panels
from glassformer.experiments.finding import Finding, Row, Rows, Spread
from glassformer.experiments.measures import logits, mean_loss
from glassformer.experiments.small import Small
from glassformer.experiments.trial import Trial, told_rates
from glassformer.looking.style import BLUE, ORANGE
from glassformer.models import DecoderOnly, EncoderOnly
from glassformer.parts.schemes import rotary
from glassformer.tasks.gathering import TokenBatch, token_loss

CLAIM = "Without the mask training leaks the future: the training loss falls, generation fails."
ORDER = 120  # in the story

WIDTH, GIVEN = 32, 3  # of the models; numbers that are given before they write
VOCABULARY = MODULUS + 1  # the numbers, and an end that is never written
MASKED, OPEN = "with the mask", "without"
KEYS = {MASKED: "masked", OPEN: "open"}
RATES, GUESS = (3e-3, 1e-2), math.log(MODULUS)
COLOURS = {MASKED: BLUE, OPEN: ORANGE}


def run(trial: Trial, steps: int = 300, count: int = 200) -> Finding:
    """The same parts, trained on the same sequences, with and without the mask; then both write."""
    tuned = trial.tuned("training", partial(_trained, steps=steps, count=count), [*KEYS], RATES)
    rows = Rows(row for each in tuned.values() for result in each.results for row in result)
    losses = rows.where(part="new").spreads("loss", by="model")
    by_seed = rows.where(part="written").spreads("right", by=("model", "seed"))
    right = {name: Spread(by_seed[name, each.seed] for each in trial.seeds()) for name in KEYS}
    facts: dict[str, float] = {f"{key}_loss": losses[name] for name, key in KEYS.items()}
    facts |= {f"{key}_right": right[name] for name, key in KEYS.items()}
    return Finding(
        method=f"A decoder, and the same parts without its mask, learned for {steps} steps which number comes next in "
        f"sequences that count up by a constant modulo {MODULUS} (from the second number on, it follows; after the "
        f"last it is not asked), each {told_rates(RATES)}. Then both were given the first {GIVEN} numbers of {count} "
        f"new sequences and wrote the other {COUNTED + 1 - GIVEN} greedily.",
        measured=f"Without the mask the loss on whole new sequences falls to {facts['open_loss']:.4f} nats, with it to "
        f"{facts['masked_loss']:.4f}; but of what it writes by itself {facts['open_right']:.0%} is right without the "
        f"mask (a guess: {1 / MODULUS:.0%}), and {facts['masked_right']:.0%} with it.",
        holds=losses[OPEN].high < 0.1 * GUESS and right[OPEN].high < 2 / MODULUS and right[MASKED].low > 0.9,
        facts=facts,
        rows=rows,
        draw=lambda: _draw(rows),
        seeds=[each.seed for each in trial.seeds()],
    )


def _trained(trial: Trial, name: str, rate: float, steps: int, count: int) -> tuple[float, list[Row]]:
    """Its losses in training, the loss of whole new sequences, and how often each number that it writes is right."""
    small = Small(VOCABULARY, WIDTH, positions=rotary)
    make: Callable[[], DecoderOnly | EncoderOnly] = small.language_model if name == MASKED else small.reader
    model = trial.begin(make)
    losses = trial.learn("", model, _inner, token_loss, steps, rate)
    new: TokenBatch = trial.new(_inner, count=count)
    of = {"model": name, "seed": trial.seed}
    rows = [{"part": "loss", **of, "step": step, "loss": loss} for step, loss in losses]
    rows += [{"part": "new", **of, "loss": mean_loss(model, new, token_loss)}]
    rows += [{"part": "written", **of, "number": n, "right": r} for n, r in enumerate(_written(model, new), start=1)]
    return mean_loss(model, trial.held_out(_inner, count=count), token_loss), rows


def _inner(rng: Rng, count: int = 32) -> TokenBatch:
    """Sequences that count; what comes after the last number read is not asked for, since nobody could peek at it."""
    batch = counting(rng, count)
    batch.label_mask[:, -1] = False
    return replace(batch, targets=int(batch.label_mask.sum()))


def _written(model: DecoderOnly | EncoderOnly, new: TokenBatch) -> list[float]:
    """How often each number that a model writes greedily after the given ones is right.

    It reads everything anew for each number: what a model without the mask saw before changes with what follows.
    """
    text, wanted = new.text[:, :GIVEN], new.labels[:, GIVEN - 1 :]  # (B, T) each
    for _ in range(wanted.shape[1]):
        number = logits(model, text)[:, -1:, :MODULUS].argmax(dim=-1)  # (B, 1)
        text = torch.cat((text, number), dim=1)  # (B, T + 1)
    return (text[:, GIVEN:] == wanted).double().mean(dim=0).tolist()


def _draw(rows: Rows) -> Figure:
    figure, (loss, right) = panels(2, 9.5, 3.6)
    bands(loss, rows.where(part="loss"), "step", "loss", "model", COLOURS, markevery=4)
    loss.set(title="Training: the loss falls either way", xlabel="step", ylabel="training loss (nats)", yscale="log")
    loss.legend()
    bands(right, rows.where(part="written"), "number", "right", "model", COLOURS)
    mark_level(right, 1 / MODULUS, "guessing")
    right.set(title="Writing: without the mask, nothing was learned", xlabel=f"number after the {GIVEN} given")
    right.set(ylabel="right numbers", ylim=(0, 1.05))
    right.legend(loc="center right")
    return figure
