"""unseen-lengths: weights that are shared across time serve lengths that nobody has seen.

A text writes symbols now and then, between others that do not matter; at each place the symbol that was written last is
asked for. The rule is the same at every place, and so are an RNN's weights. A network with weights of its own for each
step has to learn it once for each, which takes longer, and has none for later steps. A Transformer shares its weights
across places, too; but what tells places apart, its positions, is new beyond the trained length.

B texts, T length, D width
"""

from __future__ import annotations

import math
from functools import partial
from statistics import fmean
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from glassformer.experiments.batches import Rng
from glassformer.experiments.charts import bands, note, panels
from glassformer.experiments.finding import Finding, Rows, Spread
from glassformer.experiments.measures import accuracy_by_place, logits, mean_loss, parameters
from glassformer.experiments.small import CELLS, SCHEMES, Small
from glassformer.experiments.trial import Trial
from glassformer.looking.style import BLACK, BLUE, GREEN, GREY, ORANGE, PINK
from glassformer.models import recurrent
from glassformer.tasks.gathering import TokenBatch, token_loss

CLAIM = (
    "Sharing weights across time makes training efficient and enables generalisation across sequences of varying "
    "lengths, also lengths never seen."
)
ORDER = 34  # in the story

WRITTEN, OTHERS, OFTEN = 4, 4, 0.2  # symbols to remember, others, and how often one is written
WIDTH, TIMES = 32, 8  # how much longer than in training the tested texts are
OWN, RNN, GRU, WAVES, ROTARY, ALIBI = (
    "own weights for each step", "RNN", "GRU", "Transformer, sinusoidal", "Transformer, rotary", "Transformer, ALiBi"
)  # fmt: skip
COLOURS = {RNN: PINK, GRU: GREEN, OWN: ORANGE, WAVES: BLUE, ROTARY: BLACK, ALIBI: GREY}
RATES = (3e-3, 1e-2)
APART = 0.1  # of the answers: so many fewer are clearly fewer
EVERY = 5  # steps whose mean loss is one point of a curve
LEARNED = 0.1 * math.log(WRITTEN)  # nats: a tenth of the loss of a guess


class OwnWeights(nn.Module):
    """h_t = tanh(W_x^t x_t + W_h^t h_{t-1} + b^t): an RNN that shares nothing across time.

    Steps beyond its `length` have no weights: those of the last step are used for them.
    """

    def __init__(self, vocabulary: int, width: int, length: int) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(vocabulary, width), nn.Linear(width, vocabulary)
        self.steps = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(length))

    def hidden(self, text: Tensor, mask: None = None, documents: None = None) -> Tensor:
        """The states (B, T, D) after each token (B, T); there is no padding."""
        x = self.embedding(text)
        state, found = torch.zeros_like(x[:, 0]), []
        for place in range(text.shape[1]):
            step = self.steps[min(place, len(self.steps) - 1)]
            state = torch.tanh(step(torch.cat((x[:, place], state), dim=-1)))
            found.append(state)
        return torch.stack(found, dim=1)

    def forward(self, text: Tensor) -> Tensor:
        """Scores (B, T, V) of the answers at each place."""
        return self.head(self.hidden(text))  # type: ignore[no-any-return]


def run(trial: Trial, steps: int = 200, length: int = 12) -> Finding:
    """Each kind of model learns from short texts, and is asked about long ones."""
    seeds = [each.seed for each in trial.seeds()]
    tuned = trial.tuned("learning", partial(_learned, steps=steps, length=length), [*COLOURS], RATES)
    rows = Rows(
        {"part": "place", "model": name, "rate": found.rate, "seed": seed, "place": place, "right": right}
        for name, found in tuned.items()
        for seed, result in zip(seeds, found.results, strict=True)
        for place, right in enumerate(result["right"], start=1)
    )
    numbers = {name: found.results[0]["parameters"] for name, found in tuned.items()}
    needed = {name: Spread(result["needed"] for result in found.results) for name, found in tuned.items()}
    rows += [
        {"part": "training", "model": name, "seed": seed, "step": step, "loss": loss}
        for name, found in tuned.items()
        for seed, result in zip(seeds, found.results, strict=True)
        for step, loss in result["losses"]
    ]
    ends = {"within": (0, length), "twice": (length, 2 * length), "far": (TIMES // 2 * length, TIMES * length)}
    spans = {
        label: {name: _mean(rows.where(part="place", model=name), seeds, first, end) for name in COLOURS}
        for label, (first, end) in ends.items()
    }
    inside, long = spans["within"], spans["far"]
    facts: dict[str, float] = {f"parameters {name}": count for name, count in numbers.items()}
    facts |= {f"steps {name}": value for name, value in needed.items()}
    facts |= {f"{label} {name}": value for label, found in spans.items() for name, value in found.items()}
    told = ", ".join(f"{long[name]:.0%} for {name.split(', ')[1]}" for name in (WAVES, ROTARY, ALIBI))
    return Finding(
        method=f"Texts in which one of {WRITTEN} symbols is written at {OFTEN:.0%} of the places, between {OTHERS} "
        f"others; at each place the one that was written last is asked for. Models {WIDTH} wide (Transformers of 2 "
        f"layers) learned for {steps} steps from texts of {length} tokens, three times each, at the better of the "
        f"rates {RATES[0]:g} and {RATES[1]:g}, and were tested on texts {TIMES} times as long. What has to be "
        "remembered is as far away as in training: only the length is new. Training is as efficient as few steps are "
        f"needed until its loss, the mean of {EVERY} steps, is below a tenth of that of a guess; sharing is what "
        f"carries over if the network without it has {APART:.0%} fewer right far beyond the length, at every seed.",
        measured=f"Within {length} tokens {inside[RNN]:.0%} are right by an RNN ({numbers[RNN]:,} parameters), "
        f"{inside[GRU]:.0%} by a GRU, and {inside[OWN]:.0%} by a network with its own weights for each step "
        f"({numbers[OWN]:,}); they need {needed[RNN]:.0f}, {needed[GRU]:.0f} and {needed[OWN]:.0f} steps to come to "
        f"a tenth of a guess's loss. From {TIMES // 2} to {TIMES} times the length it is {long[RNN]:.0%}, "
        f"{long[GRU]:.0%}, and {long[OWN]:.0%} by that network, whose last step then stands for all later ones. A "
        f"Transformer shares its weights across places, too: {inside[WAVES]:.0%} within the length with sinusoidal "
        f"positions, {inside[ROTARY]:.0%} with rotary, {inside[ALIBI]:.0%} with ALiBi; far beyond it, {told}.",
        holds=min(long[RNN].low, long[GRU].low) > 0.9
        and min(inside[RNN].low, inside[GRU].low) > 0.9
        and max(needed[RNN].high, needed[GRU].high) < needed[OWN].low  # efficient
        and long[OWN].high < min(long[RNN].low, long[GRU].low) - APART
        and numbers[RNN] < numbers[OWN],
        facts=facts,
        rows=rows,
        draw=lambda: _draw(rows, length),
        seeds=seeds,
    )


def _mean(rows: Rows, seeds: list[int], first: int, end: int) -> Spread:
    """The mean over some places, with its range over the seeds."""
    return Spread(fmean(rows.where(seed=seed).column("right")[first:end]) for seed in seeds)


def _latest(rng: Rng, length: int, count: int = 32) -> TokenBatch:
    """Texts (B, T) that begin with a symbol to remember; the one that was written last is asked for at each place."""
    text = rng.integers(WRITTEN, WRITTEN + OTHERS, size=(count, length))
    writes = rng.random((count, length)) < OFTEN
    writes[:, 0] = True
    text = np.where(writes, rng.integers(WRITTEN, size=(count, length)), text)
    last = np.maximum.accumulate(np.where(writes, np.arange(length), 0), axis=1)  # (B, T)
    labels = np.take_along_axis(text, last, axis=1)
    asked = torch.ones(count, length, dtype=torch.bool)
    return TokenBatch(torch.from_numpy(text), torch.from_numpy(labels), asked, None, text.size, text.size)


def _model(name: str, length: int) -> nn.Module:
    """A model of this kind, whose answers are symbols."""
    vocabulary = WRITTEN + OTHERS
    if name == OWN:
        return OwnWeights(vocabulary, WIDTH, length)
    if name in CELLS:
        return recurrent(vocabulary, WIDTH, dropout=0.0, answer="next", cell=CELLS[name], tie_output=False)
    scheme = name.split(", ")[1]
    return Small(vocabulary, WIDTH, positions=SCHEMES[scheme], length=TIMES * length).language_model()


def _learned(trial: Trial, name: str, rate: float, steps: int, length: int) -> tuple[float, dict[str, Any]]:
    """The loss on validation at the trained length; right answers at each place of long texts."""
    draw, model = partial(_latest, length=length), trial.begin(_model, name, length)
    losses = trial.learn("", model, draw, token_loss, steps, rate, every=EVERY)
    needed = next((step for step, loss in losses if loss < LEARNED), steps)
    new = trial.new(_latest, length=TIMES * length, count=200)
    right = accuracy_by_place(logits(model, new.text), new.labels)
    loss = mean_loss(model, trial.held_out(draw, count=200), token_loss)
    return loss, {"right": right, "parameters": parameters(model), "needed": needed, "losses": losses}


def _draw(rows: Rows, length: int) -> Figure:
    figure, (training, axes) = panels(2, 11, 4, width_ratios=[1, 2])
    curves = {name: COLOURS[name] for name in (RNN, GRU, OWN)}
    bands(training, rows.where(part="training"), "step", "loss", "model", curves, markevery=8)
    training.axhline(LEARNED, color=GREY, linestyle=":")
    note(training, "a tenth of a guess's loss", (0, LEARNED), (2, 3), color="0.3")
    training.set(title="Learning the short texts", xlabel="step", ylabel="training loss (nats)", yscale="log")
    bands(axes, rows.where(part="place"), "place", "right", "model", COLOURS, markevery=6)
    axes.axvspan(1, length, color=GREY, alpha=0.15, linewidth=0)
    axes.annotate("trained length", (length / 2, 0.03), ha="center", color="0.3")
    axes.set(title="Tested on long texts: which symbol was written last?", ylim=(0, 1.05))
    axes.set(xlabel="place in the text", ylabel="right answers on new texts")
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    return figure
