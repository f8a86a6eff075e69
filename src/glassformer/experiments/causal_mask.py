"""causal-mask: without the mask, training leaks the future.

A model that should say which token comes next, and sees it, learns to copy it: nothing is easier, and nothing is
learned. When it has to write by itself there is no next token to copy.

B sequences, T length
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from matplotlib.figure import Figure

from glassformer.experiments.batches import COUNTED, MODULUS, Rng, counting
from glassformer.experiments.charts import lines, mark_level, panels
from glassformer.experiments.finding import Finding, Rows
from glassformer.experiments.measures import logits, mean_loss
from glassformer.experiments.small import Small
from glassformer.experiments.trial import Trial
from glassformer.looking.style import BLUE, ORANGE
from glassformer.models import DecoderOnly, EncoderOnly
from glassformer.parts.schemes import rotary
from glassformer.tasks.gathering import TokenBatch, token_loss

CLAIM = "Without the mask training leaks the future: the training loss falls, generation fails."
ORDER = 120  # in the story

WIDTH, GIVEN = 32, 3  # of the models; numbers that are given before they write
VOCABULARY = MODULUS + 1  # the numbers, and an end that is never written
MASKED, OPEN = "with the mask", "without"
COLOURS = {MASKED: BLUE, OPEN: ORANGE}


def run(trial: Trial, steps: int = 400, count: int = 200) -> Finding:
    """The same parts, trained on the same sequences, with and without the mask; then both write."""
    small = Small(VOCABULARY, WIDTH, positions=rotary)
    new: TokenBatch = trial.new(_inner, count=count)
    rows = Rows()
    facts: dict[str, float] = {}
    makes: dict[str, Callable[[], DecoderOnly | EncoderOnly]]
    makes = {MASKED: small.language_model, OPEN: small.reader}
    for name, key in ((MASKED, "masked"), (OPEN, "open")):
        model = trial.begin(makes[name])
        losses = trial.learn(f"training {name}", model, _inner, token_loss, steps, 5e-3)
        rows += [{"part": "loss", "model": name, "step": step, "loss": loss} for step, loss in losses]
        facts[f"{key}_loss"] = mean_loss(model, new, token_loss)
        right = _written(model, new)
        rows += [{"part": "written", "model": name, "number": n + 1, "right": r} for n, r in enumerate(right)]
        facts[f"{key}_right"] = sum(right) / len(right)
    return Finding(
        method=f"A decoder, and the same parts without its mask, learned for {steps} steps which number comes next in "
        f"sequences that count up by a constant modulo {MODULUS} (from the second number on, it follows; after the "
        f"last it is not asked). Then both were given the first {GIVEN} numbers of {count} new sequences and wrote the "
        f"other {COUNTED + 1 - GIVEN} greedily.",
        measured=f"Without the mask the loss on whole new sequences falls to {facts['open_loss']:.4f} nats "
        f"({facts['masked_loss']:.4f} with it); but of what it writes by itself {facts['open_right']:.0%} is "
        f"right (a guess: {1 / MODULUS:.0%}), against {facts['masked_right']:.0%} with the mask.",
        holds=facts["open_loss"] < 0.5 and facts["open_right"] < 0.3 and facts["masked_right"] > 0.85,
        facts=facts,
        rows=rows,
        draw=lambda: _draw(rows),
    )


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
    lines(loss, rows.where(part="loss"), "step", "loss", "model", COLOURS, markevery=4)
    loss.set(title="Training: the mask makes it harder", xlabel="step", ylabel="training loss (nats)", yscale="log")
    loss.legend()
    lines(right, rows.where(part="written"), "number", "right", "model", COLOURS)
    mark_level(right, 1 / MODULUS, "guessing")
    right.set(title="Writing: without it, nothing was learned", xlabel=f"number after the {GIVEN} given")
    right.set(ylabel="right numbers", ylim=(0, 1.05))
    right.legend(loc="center right")
    return figure
