"""causal-mask: without the mask, training leaks the future.

A model that should say which token comes next, and sees it, learns to copy it: nothing is easier, and nothing is
learned. When it has to write by itself there is no next token to copy.

B sequences, T length, k beams, V vocabulary
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from glassformer.decoding import Generator, Limits, greedy
from glassformer.experiments.finding import Finding, Progress, Row, silent
from glassformer.experiments.learning import COUNTED, MODULUS, Dice, counting, held_out, learn, mean_loss
from glassformer.experiments.small import Scheme, Small
from glassformer.looking.style import BLUE, GREY, ORANGE
from glassformer.models import EncoderOnly
from glassformer.parts.positions import Rotary
from glassformer.tasks import WindowBatch, language_loss

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH, GIVEN = 32, 3  # of the models; numbers that are given before they write
END = MODULUS  # a token that decoding wants to know of, and that is never written
MASKED, OPEN = "with the mask", "without"
COLOURS = {MASKED: (BLUE, "o"), OPEN: (ORANGE, "s")}


@dataclass
class Written:
    """What an unmasked model remembers between steps: all that was written, since it reads everything anew."""

    tokens: Tensor  # (B, T)

    @property
    def first(self) -> Tensor:
        """What the first step reads: the last token of the prompt, (B, 1)."""
        return self.tokens[:, -1:]

    def select(self, beams: Tensor, sentences: Tensor | None = None) -> None:
        """Go on with some sentences; there is one beam in each."""
        self.tokens = self.tokens if sentences is None else self.tokens[sentences]


@dataclass
class Unmasked:
    """Lets the library's decoding write with a model that has no mask."""

    model: EncoderOnly
    begun: bool = False

    def start(self, prompt: Tensor) -> Written:
        """Read a prompt (B, T)."""
        self.begun = False
        return Written(prompt)

    def step(self, state: Written, tokens: Tensor) -> tuple[Tensor, Written]:
        """Logits (B, 1, V) of the token after `tokens` (B, 1)."""
        if self.begun:
            state.tokens = torch.cat((state.tokens, tokens), dim=1)  # (B, T + 1)
        self.begun = True
        return self.model(state.tokens)[:, -1:], state


def run(seed: int = 0, progress: Progress = silent, steps: int = 400, count: int = 200) -> Finding:
    """The same parts, trained on the same sequences, with and without the mask; then both write."""
    small = Small(MODULUS + 1, WIDTH, scheme=Scheme(attention=Rotary(WIDTH // 4)))
    new: WindowBatch = held_out(partial(_inner, count=count), seed)
    rows: list[Row] = []
    facts: dict[str, float] = {}
    for name, key in ((MASKED, "masked"), (OPEN, "open")):
        torch.manual_seed(seed)
        model = small.language_model() if name == MASKED else small.reader()
        losses = learn(model, _inner, language_loss, steps, 5e-3, seed, progress, f"training {name}")
        rows += [{"part": "loss", "model": name, "step": step, "loss": loss} for step, loss in losses]
        facts[f"{key}_loss"] = mean_loss(model, new, language_loss)
        right = _written(Unmasked(model) if isinstance(model, EncoderOnly) else model, new)
        rows += [{"part": "written", "model": name, "number": n + 1, "right": r} for n, r in enumerate(right)]
        facts[f"{key}_right"] = sum(right) / len(right)
    return Finding(
        method=f"A decoder, and the same parts without its mask, learned for {steps} steps which number comes next in "
        f"sequences that count up by a constant modulo {MODULUS} (from the second number on, it follows; "
        "after the last it is not asked). "
        f"Then both were given the first {GIVEN} numbers of {count} new sequences and wrote the other "
        f"{COUNTED + 1 - GIVEN} greedily.",
        measured=f"Without the mask the loss on whole new sequences falls to {facts['open_loss']:.4f} nats "
        f"({facts['masked_loss']:.4f} with it); but of what it writes by itself {facts['open_right']:.0%} is "
        f"right (a guess: {1 / MODULUS:.0%}), against {facts['masked_right']:.0%} with the mask.",
        holds=facts["open_loss"] < 0.5 and facts["open_right"] < 0.3 and facts["masked_right"] > 0.85,
        facts=facts,
        rows=rows,
        draw=lambda: _draw(rows),
    )


def _inner(dice: Dice, count: int = 32) -> WindowBatch:
    """Sequences that count; what comes after the last number read is not asked for, since nobody could peek at it."""
    batch = counting(dice, count)
    asked = batch.asked.clone()
    asked[:, -1] = False
    return replace(batch, asked=asked, answers=int(asked.sum()))


def _written(model: Generator, new: WindowBatch) -> list[float]:
    """How often each number that a model writes after the given ones is right."""
    given, wanted = new.text[:, :GIVEN], new.right[:, GIVEN - 1 :]  # (B, T) each
    limits = Limits(start=None, end=END, max_length=wanted.shape[1], suppress=(END,))
    written = torch.tensor([each.tokens for each in greedy(model, given, limits=limits)])  # (B, T)
    return (written == wanted).double().mean(dim=0).tolist()


def _draw(rows: list[Row]) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.5, 3.6), layout="constrained")
    loss, right = figure.subplots(1, 2)
    for name, (colour, marker) in COLOURS.items():
        own = [row for row in rows if row["model"] == name]
        trained, written = ([row for row in own if row["part"] == part] for part in ("loss", "written"))
        steps, losses = [row["step"] for row in trained], [row["loss"] for row in trained]
        loss.plot(steps, losses, color=colour, marker=marker, markevery=4, label=name)
        numbers = [row["number"] + GIVEN for row in written]
        right.plot(numbers, [row["right"] for row in written], color=colour, marker=marker, label=name)
    loss.set(title="Training: the mask makes it harder", xlabel="step", ylabel="training loss (nats)", yscale="log")
    loss.legend()
    right.axhline(1 / MODULUS, color=GREY, linestyle=":")
    right.annotate("guessing", (GIVEN + 1, 1 / MODULUS), xytext=(0, 4), textcoords="offset points", color="0.3")
    right.set(title="Writing: without it, nothing was learned", xlabel="place in the sequence", ylim=(0, 1.05))
    right.set_ylabel(f"right numbers, the first {GIVEN} given")
    right.legend(loc="center right")
    return figure
