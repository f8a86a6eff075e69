"""teacher-forcing: training on all places at once is training step by step, only faster.

In training the right words are known, so nothing has to wait for the model's own. With the mask, place 5 sees places 1
to 5 and nothing else, whether the later ones are there or not: one pass over T tokens gives the T losses that T passes
over 1, 2, …, T tokens would give.

B sequences, T length, V vocabulary
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor, nn

from glassformer.experiments.charts import bands, bars, lines, log_ticks, panels
from glassformer.experiments.finding import Finding, Row, Rows
from glassformer.experiments.measures import quickest
from glassformer.experiments.small import language_model
from glassformer.experiments.trial import Trial
from glassformer.looking.style import BLUE, ORANGE
from glassformer.models import DecoderOnly

CLAIM = "Training on all places in parallel equals training step by step (same loss), and is faster."
ORDER = 130  # in the story

VOCABULARY, WIDTH, BATCH = 100, 64, 8
ROUNDS = 2  # of the clock
PARALLEL, STEPWISE = "all places at once", "step by step"


def run(trial: Trial, lengths: Sequence[int] = (8, 16, 32, 64)) -> Finding:
    """One training step both ways, at several lengths: loss, gradient, and the clock."""
    seeds = [each.seed for each in trial.seeds()]
    rows = Rows(row for seed in trial.each("training both ways", seeds) for row in _both_ways(seed, lengths))
    errors = rows.where(way=STEPWISE)
    loss_error, gradient_error = (max(errors.column(name)) for name in ("loss error", "gradient error"))
    speeds = errors.spreads("speed", by="length")
    short, long = lengths[0], lengths[-1]
    return Finding(
        method=f"A decoder of 2 layers, width {WIDTH}, in double precision, read {BATCH} random sequences of "
        f"{short} to {long} tokens: once all places together, and once a place at a time, each from the right tokens "
        f"before it. Compared are the mean loss, the gradient of all parameters, and the processor's time for loss and "
        f"gradient on one thread (the least of {ROUNDS}).",
        measured=f"At every length and seed the losses agree to {loss_error:.0e} and the gradients to "
        f"{gradient_error:.0e} of their size; all places at once are {speeds[short]:.1f} times as fast at {short} "
        f"tokens and {speeds[long]:.0f} times at {long}.",
        holds=loss_error < 1e-10 and gradient_error < 1e-10 and all(speed.low > 1 for speed in speeds.values()),
        facts={
            "loss_error": loss_error,
            "gradient_error": gradient_error,
            **{f"speed {length}": speed for length, speed in speeds.items()},
        },
        rows=rows,
        draw=lambda: _draw(rows, lengths, [*speeds.values()]),
        seeds=seeds,
    )


def _both_ways(seed: int, lengths: Sequence[int]) -> list[Row]:
    """Losses and times of one model both ways; with the second way how far its loss and its gradient are from those."""
    torch.manual_seed(seed)
    model, rng = language_model("Transformer", VOCABULARY, WIDTH).double(), torch.Generator().manual_seed(seed)
    rows: list[Row] = []
    for length in lengths:
        text = torch.randint(VOCABULARY, (BATCH, length + 1), generator=rng)  # (B, T + 1)
        found = []
        for name, way in {PARALLEL: at_once, STEPWISE: step_by_step}.items():
            loss, seconds = quickest(partial(_step, model, way, text), ROUNDS)
            gradient = nn.utils.parameters_to_vector([p.grad for p in model.parameters() if p.grad is not None])
            found.append((loss, seconds, gradient))
            rows.append({"way": name, "seed": seed, "length": length, "loss": loss, "seconds": seconds})
        (one, quick, by_one), (other, slow, by_other) = found
        rows[-1] |= {"loss error": abs(one - other) / one, "speed": slow / quick}
        rows[-1]["gradient error"] = ((by_one - by_other).norm() / by_one.norm()).item()
    return rows


def at_once(model: DecoderOnly, text: Tensor, labels: Tensor) -> Tensor:
    """The mean loss of `labels` (B, T) after each of `text` (B, T), in one pass."""
    return F.cross_entropy(model(text).flatten(0, 1), labels.flatten())


def step_by_step(model: DecoderOnly, text: Tensor, labels: Tensor) -> Tensor:
    """The same, a place at a time: read the tokens so far, score the next."""
    places = range(text.shape[1])
    return torch.stack([F.cross_entropy(model(text[:, : t + 1])[:, -1], labels[:, t]) for t in places]).mean()


def _step(model: DecoderOnly, way: Callable[..., Tensor], text: Tensor) -> float:
    """The loss; the parameters keep its gradient."""
    model.zero_grad()
    loss = way(model, text[:, :-1], text[:, 1:])
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.item()


def _draw(rows: Rows, lengths: Sequence[int], speeds: Sequence[float]) -> Figure:
    figure, (loss, time, speed) = panels(3, 10.5, 3.5)
    lines(loss, rows, "length", "loss", "way", {PARALLEL: BLUE}, linestyle="")
    lines(loss, rows, "length", "loss", "way", {STEPWISE: ORANGE}, linestyle="", markersize=9, fillstyle="none")
    loss.set(title="The same loss", ylabel="mean loss (nats)")
    loss.legend()
    bands(time, rows, "length", "seconds", "way", {PARALLEL: BLUE, STEPWISE: ORANGE}, scale=1000)
    time.set(title="Not the same time", ylabel="loss and gradient (ms)", yscale="log")
    bars(speed, lengths, {"": speeds}, {"": BLUE}, form="{:.1f} ×")
    speed.set(title="How much faster", ylabel="step by step / all at once")
    log_ticks(loss, lengths)
    log_ticks(time, lengths)
    for axes in (loss, time, speed):
        axes.set_xlabel("tokens in a sequence")
    return figure
