"""residual-and-norm: depth without residual connections or norms does not train.

The same stack of blocks with its two helpers taken away: the path round each part (x + part(x)), and the norm. What is
left is a product of many matrices, through which neither the numbers nor their gradients come in their right size.

B sequences, T length, D model width
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from torch import Tensor, nn

from glassformer.errors import TrainingError
from glassformer.experiments.batches import COUNTED, MODULUS, counting
from glassformer.experiments.charts import legend_below, lines, log_ticks, mark_level, panels
from glassformer.experiments.finding import Finding, Rows
from glassformer.experiments.measures import mean_loss
from glassformer.experiments.small import Small, blocks_of
from glassformer.experiments.trial import Trial
from glassformer.looking.style import BLACK, BLUE, GREEN, ORANGE, PINK
from glassformer.models import DecoderOnly
from glassformer.parts.norms import LayerNorm, PostNorm, PreNorm, Residual
from glassformer.parts.schemes import learned
from glassformer.tasks.gathering import TokenBatch, token_loss
from glassformer.tasks.objective import Objective

CLAIM = "Depth without residual connections or norms does not train."
ORDER = 100  # in the story

WIDTH, RATE = 32, 5e-3
LARGE = 2.0  # times as large as it should be
WORST = 10.0  # nats: what is lost beyond that is not worth a picture
GUESS = math.log(MODULUS)  # the loss of somebody who knows nothing


class NoResidual(PostNorm):
    """norm(part(x)): nothing goes past the part."""

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """The normalised output (B, T, D) of the part alone."""
        return self.norm(self.part(x, *args, **kwargs))  # type: ignore[no-any-return]


def no_norm(width: int) -> nn.Module:
    """What stands where a norm would stand."""
    return nn.Identity()


VARIANTS: dict[str, tuple[Residual, Callable[[int], nn.Module]]] = {
    "residual and norm before (pre-norm)": (PreNorm, LayerNorm),
    "residual and norm after (post-norm)": (PostNorm, LayerNorm),
    "residual, no norm": (PreNorm, no_norm),
    "norm, no residual": (NoResidual, LayerNorm),
    "neither": (NoResidual, no_norm),
}
PRE, POST, RESIDUAL, NORM, NEITHER = VARIANTS
COLOURS = {PRE: BLUE, POST: GREEN, RESIDUAL: PINK, NORM: ORANGE, NEITHER: BLACK}


def run(
    trial: Trial,
    steps: int = 100,
    depths: Sequence[int] = (1, 2, 4, 8),
    gains: Sequence[float] = (1.5, 2.0, 4.0),
    new: int = 500,
) -> Finding:
    """The same training at several depths with and without each; then with and without norms from larger numbers."""
    rows = Rows()
    deep = max(depths)
    trials = [("depth", depth, 1.0, name) for depth in depths for name in VARIANTS]
    trials += [("gain", deep, gain, name) for name in (PRE, RESIDUAL) for gain in gains]
    for part, depth, gain, name in trials:
        model = trial.begin(_model, name, depth, gain)
        if (part, depth) == ("depth", deep):
            lengths = enumerate(_gradients(model, trial.new(counting)), start=1)
            rows += [{"part": "gradient", "variant": name, "block": n, "gradient": length} for n, length in lengths]
        told = f"{depth} blocks, {name}" if part == "depth" else f"{gain:g} times as large, {name}"
        loss = _trained(trial, told, model, steps, new)
        rows.append({"part": part, "variant": name, "depth": depth, "gain": gain, "loss": loss})
    losses = Rows(row for row in rows if "loss" in row).values("loss", by=("variant", "depth", "gain"))
    first = rows.where(block=1).values("gradient", by="variant")
    facts: dict[str, float] = {
        "pre": losses[PRE, deep, 1.0],
        "post": losses[POST, deep, 1.0],
        "residual_only": losses[RESIDUAL, deep, 1.0],
        "norm_only": losses[NORM, deep, 1.0],
        "neither": losses[NEITHER, deep, 1.0],
        "neither_shallow": losses[NEITHER, min(depths), 1.0],
        "pre_from_large": losses[PRE, deep, LARGE],
        "residual_only_from_large": losses[RESIDUAL, deep, LARGE],
        "first_gradient_pre": first[PRE],
        "first_gradient_neither": first[NEITHER],
    }
    return Finding(
        method=f"Decoders of {', '.join(map(str, depths))} blocks learned for {steps} steps to go on with sequences "
        f"that count up by a constant modulo {MODULUS}, at the rate {RATE:g} and from the same initialisation; the "
        f"loss is that of {new} new sequences, at most {WORST:g}. At {deep} blocks, residuals with and without norms "
        f"also began with matrices {' and '.join(f'{gain:g}' for gain in gains)} times as large. "
        "The gradient is that of the loss by each block's parameters before the first step.",
        measured=f"With {deep} blocks the loss falls to {facts['pre']:.2f} nats with residuals and norms before each "
        f"part, from {GUESS:.2f} of guessing; without residuals it stays at {facts['norm_only']:.2f} with norms and at "
        f"{facts['neither']:.2f} without, though one block alone without either reaches "
        f"{facts['neither_shallow']:.2f}. The gradient that arrives at the first block is "
        f"{facts['first_gradient_pre']:.1g} with both and {facts['first_gradient_neither']:.1g} with neither. "
        f"Residuals alone, without norms, reach {facts['residual_only']:.2f} as long as the matrices begin at the "
        f"right size; begun {LARGE:g} times as large, they end at {facts['residual_only_from_large']:.1f} or more, "
        f"worse than guessing, where residuals and norms reach {facts['pre_from_large']:.2f}. With the norm after the "
        f"sum (post-norm), {steps} steps with a short warm-up reach {facts['post']:.2f}.",
        holds=facts["pre"] < facts["norm_only"] - 0.05
        and min(facts["norm_only"], facts["neither"]) > 0.95 * GUESS
        and facts["residual_only_from_large"] > GUESS
        and facts["pre_from_large"] < 0.5 * GUESS
        and facts["first_gradient_neither"] < facts["first_gradient_pre"] / 1e3,
        facts=facts,
        rows=rows,
        draw=lambda: _draw(rows, depths),
    )


def _model(variant: str, depth: int, gain: float) -> DecoderOnly:
    """A model whose blocks' matrices are `gain` times as large as usual."""
    residual, norm = VARIANTS[variant]
    small = Small(MODULUS, WIDTH, layers=depth, positions=learned, residual=residual, norm=norm, length=COUNTED)
    model = small.language_model()
    for parameter in blocks_of(model).parameters():
        if parameter.dim() > 1:
            parameter.data.mul_(gain)
    return model


def _trained(trial: Trial, name: str, model: DecoderOnly, steps: int, new: int) -> float:
    """The loss of some new sequences after training, at most `WORST`, also where it ended in numbers that are none."""
    try:
        trial.learn(name, model, counting, token_loss, steps, RATE)
    except TrainingError:
        return WORST
    loss = mean_loss(model, counting(np.random.default_rng([trial.seed, 3]), new), token_loss)
    return min(loss, WORST) if math.isfinite(loss) else WORST


def _gradients(model: DecoderOnly, batch: TokenBatch) -> list[float]:
    """How long the gradient by each block's parameters is, from the first block to the last."""
    (Objective(model, token_loss)(batch) / batch.targets).backward()
    blocks = [[each.grad for each in block.parameters() if each.grad is not None] for block in blocks_of(model)]
    lengths = [nn.utils.get_total_norm(gradients).item() for gradients in blocks]
    model.zero_grad()
    return lengths


def _draw(rows: Rows, depths: Sequence[int]) -> Figure:
    figure, (depth, gradient, gain) = panels(3, 10.5, 4.2)
    deep = max(depths)
    lines(depth, rows.where(part="depth"), "depth", "loss", "variant", COLOURS)
    lines(gradient, rows.where(part="gradient"), "block", "gradient", "variant", COLOURS)
    enlarged = {name: COLOURS[name] for name in (PRE, RESIDUAL)}
    lines(gain, rows.where(depth=deep), "gain", "loss", "variant", enlarged)
    for axes in (depth, gain):
        mark_level(axes, GUESS, "guessing")
        axes.set_ylabel("loss after training (nats)")
    log_ticks(depth, depths)
    depth.set(title="Deeper and deeper", xlabel="blocks", ylim=(-0.1, 2.8))
    gradient.set(title=f"Gradient before training, {deep} blocks", xlabel="block (1 reads the embeddings)")
    gradient.set(ylabel="length of the gradient", yscale="log")
    gain.set(title=f"From larger numbers, {deep} blocks", xlabel="matrices begin so many times as large")
    legend_below(figure, depth, columns=3)
    return figure
