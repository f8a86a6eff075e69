"""teacher-forcing: training on all places at once is training step by step, only faster.

In training the right words are known, so nothing has to wait for the model's own. With the mask, place 5 sees places 1
to 5 and nothing else, whether the later ones are there or not: one pass over T tokens gives the T losses that T passes
over 1, 2, …, T tokens would give.

B sequences, T length, V vocabulary
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.experiments.finding import Finding, Progress, Row, silent
from glassformer.experiments.small import Scheme, Small
from glassformer.experiments.timing import quickest
from glassformer.looking.style import BLUE, ORANGE
from glassformer.models import DecoderOnly
from glassformer.parts.positions import Sinusoidal

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VOCABULARY, WIDTH, BATCH = 100, 64, 8
ROUNDS = 3  # of the clock
PARALLEL, STEPWISE = "all places at once", "step by step"
COLOURS = {PARALLEL: (BLUE, "o"), STEPWISE: (ORANGE, "s")}


def run(seed: int = 0, progress: Progress = silent, lengths: Sequence[int] = (8, 16, 32, 64, 128)) -> Finding:
    """One training step both ways, at several lengths: loss, gradient, and the clock."""
    model = Small(VOCABULARY, WIDTH, scheme=Scheme(embedding=Sinusoidal(WIDTH))).language_model()
    dice = torch.Generator().manual_seed(seed)
    ways: dict[str, Callable[[DecoderOnly, Tensor, Tensor], Tensor]] = {PARALLEL: at_once, STEPWISE: step_by_step}
    rows: list[Row] = []
    loss_error = gradient_error = 0.0
    for done, length in enumerate(lengths, start=1):
        text = torch.randint(VOCABULARY, (BATCH, length + 1), generator=dice)  # (B, T + 1)
        found = {}
        for name, way in ways.items():
            loss, gradient, seconds = _timed(model, way, text[:, :-1], text[:, 1:])
            found[name] = loss, gradient
            rows.append({"way": name, "length": length, "loss": loss, "seconds": seconds})
        (one, by_one), (other, by_other) = found[PARALLEL], found[STEPWISE]
        loss_error = max(loss_error, abs(one - other) / one)
        gradient_error = max(gradient_error, ((by_one - by_other).norm() / by_one.norm()).item())
        progress("training both ways", done, len(lengths))
    times = {(row["way"], row["length"]): row["seconds"] for row in rows}
    speeds = [times[STEPWISE, length] / times[PARALLEL, length] for length in lengths]
    facts = {"loss_error": loss_error, "gradient_error": gradient_error, "speed": speeds[-1], "speed_short": speeds[0]}
    return Finding(
        method=f"A decoder of 2 layers, width {WIDTH}, in double precision, read {BATCH} random sequences of "
        f"{lengths[0]} to {lengths[-1]} tokens: once all places together, and once a place at a time, each from the "
        f"right tokens before it. Compared are the mean loss, the gradient of all parameters, and the time of loss and "
        f"gradient on one thread (the least of {ROUNDS}).",
        measured=f"The losses agree to {loss_error:.0e} and the gradients to {gradient_error:.0e} of their size; "
        f"all places at once are {speeds[0]:.1f} times as fast at {lengths[0]} tokens and {speeds[-1]:.0f} times at "
        f"{lengths[-1]}.",
        holds=loss_error < 1e-10 and gradient_error < 1e-10 and speeds[-1] > max(2.0, speeds[0]),
        facts=facts,
        rows=rows,
        draw=lambda: _draw(rows, lengths, speeds),
    )


def at_once(model: DecoderOnly, text: Tensor, right: Tensor) -> Tensor:
    """The mean loss of `right` (B, T) after each of `text` (B, T), in one pass."""
    return F.cross_entropy(model(text).flatten(0, 1), right.flatten())


def step_by_step(model: DecoderOnly, text: Tensor, right: Tensor) -> Tensor:
    """The same, a place at a time: read the tokens so far, score the next."""
    places = range(text.shape[1])
    return torch.stack([F.cross_entropy(model(text[:, : t + 1])[:, -1], right[:, t]) for t in places]).mean()


def _timed(
    model: DecoderOnly, way: Callable[[DecoderOnly, Tensor, Tensor], Tensor], text: Tensor, right: Tensor
) -> tuple[float, Tensor, float]:
    """The loss, its gradient as one vector, and the seconds of both."""
    model.double()

    def both() -> float:
        model.zero_grad()
        loss = way(model, text, right)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.item()

    loss, seconds = quickest(both, ROUNDS)
    gradient = nn.utils.parameters_to_vector([p.grad for p in model.parameters() if p.grad is not None])
    return loss, gradient, seconds


def _draw(rows: list[Row], lengths: Sequence[int], speeds: Sequence[float]) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.5, 3.5), layout="constrained")
    loss, time, speed = figure.subplots(1, 3)
    for name, (colour, marker) in COLOURS.items():
        own = [row for row in rows if row["way"] == name]
        style = {"color": colour, "marker": marker, "label": name}
        wide = {"markersize": 9, "markerfacecolor": "none"} if name == STEPWISE else {}
        loss.plot(lengths, [row["loss"] for row in own], linestyle="", **{**style, **wide})
        time.plot(lengths, [1e3 * row["seconds"] for row in own], **style)
    loss.set(title="The same loss", ylabel="mean loss (nats)")
    loss.legend()
    time.set(title="Not the same time", ylabel="loss and gradient (ms)", yscale="log")
    speed.bar(range(len(lengths)), speeds, color=BLUE)
    for place, value in enumerate(speeds):
        speed.annotate(f"{value:.1f} ×", (place, value), xytext=(0, 2), textcoords="offset points", ha="center")
    speed.set(title="How much faster", ylabel="step by step / all at once", xlabel="tokens in a sequence")
    speed.set_xticks(range(len(lengths)), lengths)
    speed.grid(visible=False, axis="x")
    for axes in (loss, time):
        axes.set(xlabel="tokens in a sequence", xscale="log")
        axes.set_xticks(lengths, lengths)
        axes.minorticks_off()
    return figure
