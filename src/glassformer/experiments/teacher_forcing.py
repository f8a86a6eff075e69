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

from glassformer.experiments.charts import bars, lines, log_ticks, panels
from glassformer.experiments.finding import Finding, Rows
from glassformer.experiments.measures import quickest
from glassformer.experiments.small import language_model
from glassformer.experiments.trial import Trial
from glassformer.looking.style import BLUE, ORANGE
from glassformer.models import DecoderOnly

CLAIM = "Training on all places in parallel equals training step by step (same loss), and is faster."
ORDER = 130  # in the story

VOCABULARY, WIDTH, BATCH = 100, 64, 8
ROUNDS = 3  # of the clock
PARALLEL, STEPWISE = "all places at once", "step by step"


def run(trial: Trial, lengths: Sequence[int] = (8, 16, 32, 64, 128)) -> Finding:
    """One training step both ways, at several lengths: loss, gradient, and the clock."""
    model = language_model("Transformer", VOCABULARY, WIDTH).double()
    rng = torch.Generator().manual_seed(trial.seed)
    ways: dict[str, Callable[[DecoderOnly, Tensor, Tensor], Tensor]] = {PARALLEL: at_once, STEPWISE: step_by_step}
    rows = Rows()
    loss_error = gradient_error = 0.0
    for length in trial.each("training both ways", lengths):
        text = torch.randint(VOCABULARY, (BATCH, length + 1), generator=rng)  # (B, T + 1)
        found = []
        for name, way in ways.items():
            loss, seconds = quickest(partial(_step, model, way, text), ROUNDS)
            gradient = nn.utils.parameters_to_vector([p.grad for p in model.parameters() if p.grad is not None])
            found.append((loss, gradient))
            rows.append({"way": name, "length": length, "loss": loss, "seconds": seconds})
        (one, by_one), (other, by_other) = found
        loss_error = max(loss_error, abs(one - other) / one)
        gradient_error = max(gradient_error, ((by_one - by_other).norm() / by_one.norm()).item())
    parallel, stepwise = (rows.where(way=name).column("seconds") for name in ways)
    speeds = [slow / fast for slow, fast in zip(stepwise, parallel, strict=True)]
    return Finding(
        method=f"A decoder of 2 layers, width {WIDTH}, in double precision, read {BATCH} random sequences of "
        f"{lengths[0]} to {lengths[-1]} tokens: once all places together, and once a place at a time, each from the "
        f"right tokens before it. Compared are the mean loss, the gradient of all parameters, and the time of loss and "
        f"gradient on one thread (the least of {ROUNDS}).",
        measured=f"The losses agree to {loss_error:.0e} and the gradients to {gradient_error:.0e} of their size; "
        f"all places at once are {speeds[0]:.1f} times as fast at {lengths[0]} tokens and {speeds[-1]:.0f} times at "
        f"{lengths[-1]}.",
        holds=loss_error < 1e-10 and gradient_error < 1e-10 and speeds[-1] > max(2.0, speeds[0]),
        facts={
            "loss_error": loss_error,
            "gradient_error": gradient_error,
            "speed": speeds[-1],
            "speed_short": speeds[0],
        },
        rows=rows,
        draw=lambda: _draw(rows, lengths, speeds),
    )


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
    lines(time, rows, "length", "seconds", "way", {PARALLEL: BLUE, STEPWISE: ORANGE}, scale=1000)
    time.set(title="Not the same time", ylabel="loss and gradient (ms)", yscale="log")
    bars(speed, lengths, {"": speeds}, {"": BLUE}, form="%.1f ×")
    speed.set(title="How much faster", ylabel="step by step / all at once")
    log_ticks(loss, lengths)
    log_ticks(time, lengths)
    for axes in (loss, time, speed):
        axes.set_xlabel("tokens in a sequence")
    return figure
