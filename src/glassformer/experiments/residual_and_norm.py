"""residual-and-norm: depth without residual connections or norms does not train.

The same stack of blocks with its two helpers taken away: the path round each part (x + part(x)), and the norm. What is
left is a product of many matrices, through which neither the numbers nor their gradients come in their right size.

B sequences, T length, D model width
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from glassformer.errors import TrainingError
from glassformer.experiments.finding import Finding, Progress, Row, silent
from glassformer.experiments.learning import COUNTED, MODULUS, counting, held_out, learn, mean_loss
from glassformer.experiments.small import Scheme, Small
from glassformer.looking.style import BLACK, BLUE, GREEN, GREY, ORANGE, PINK
from glassformer.models import DecoderOnly
from glassformer.parts.norms import LayerNorm, Placement, PostNorm, PreNorm
from glassformer.parts.positions import Learned
from glassformer.tasks import language_loss
from glassformer.training.objective import Objective

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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


VARIANTS: dict[str, tuple[Placement, Callable[[int], nn.Module], str, str]] = {
    "residual and norm before (pre-norm)": (PreNorm, LayerNorm, BLUE, "o"),
    "residual and norm after (post-norm)": (PostNorm, LayerNorm, GREEN, "^"),
    "residual, no norm": (PreNorm, no_norm, PINK, "D"),
    "norm, no residual": (NoResidual, LayerNorm, ORANGE, "s"),
    "neither": (NoResidual, no_norm, BLACK, "X"),
}
PRE, POST, RESIDUAL, NORM, NEITHER = VARIANTS


def run(
    seed: int = 0,
    progress: Progress = silent,
    steps: int = 100,
    depths: Sequence[int] = (1, 2, 4, 8),
    gains: Sequence[float] = (1.5, 2.0, 4.0),
    new: int = 500,
) -> Finding:
    """The same training at several depths with and without each; then with and without norms from larger numbers."""
    rows: list[Row] = []
    deep = max(depths)
    for depth in depths:
        for name in VARIANTS:
            model = _model(name, depth, 1.0, seed)
            if depth == deep:
                rows += [{"part": "gradient", "variant": name, **row} for row in _gradients(model, seed)]
            loss = _trained(model, steps, new, seed, progress, f"{depth} blocks, {name}")
            rows.append({"part": "depth", "variant": name, "depth": depth, "gain": 1.0, "loss": loss})
    for name in (PRE, RESIDUAL):
        for gain in gains:
            what = f"{gain:g} times as large, {name}"
            loss = _trained(_model(name, deep, gain, seed), steps, new, seed, progress, what)
            rows.append({"part": "gain", "variant": name, "depth": deep, "gain": gain, "loss": loss})
    losses = {(row["variant"], row["depth"], row["gain"]): row["loss"] for row in rows if "loss" in row}
    first = {row["variant"]: row["gradient"] for row in rows if row.get("block") == 1}
    facts = {
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
        draw=lambda: _draw(rows),
    )


def _model(variant: str, depth: int, gain: float, seed: int) -> DecoderOnly:
    """A model whose blocks' matrices are `gain` times as large as usual."""
    placement, norm, _, _ = VARIANTS[variant]
    torch.manual_seed(seed)
    scheme = Scheme(embedding=Learned(COUNTED, WIDTH))
    model = Small(MODULUS, WIDTH, layers=depth, scheme=scheme, residual=placement, norm=norm).language_model()
    with torch.no_grad():
        for parameter in model.decoder.blocks.parameters():
            if parameter.dim() > 1:
                parameter.mul_(gain)
    return model


def _trained(model: DecoderOnly, steps: int, new: int, seed: int, progress: Progress, name: str) -> float:
    """The loss of some new sequences after training, at most `WORST`, also where it ended in numbers that are none."""
    try:
        learn(model, counting, language_loss, steps, RATE, seed, progress, name)
    except TrainingError:
        return WORST
    loss = mean_loss(model, counting(np.random.default_rng([seed, 3]), new), language_loss)
    return min(loss, WORST) if math.isfinite(loss) else WORST


def _gradients(model: DecoderOnly, seed: int) -> list[Row]:
    """How long the gradient by each block's parameters is, from the first block to the last."""
    batch = held_out(counting, seed)
    (Objective(model, loss=language_loss)(batch) / batch.answers).backward()
    rows: list[Row] = []
    for number, block in enumerate(model.decoder.blocks, start=1):
        gradients = [parameter.grad for parameter in block.parameters() if parameter.grad is not None]
        rows.append({"block": number, "gradient": nn.utils.get_total_norm(gradients).item()})
    model.zero_grad()
    return rows


def _draw(rows: list[Row]) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.5, 4.2), layout="constrained")
    depth, gradient, gain = figure.subplots(1, 3)
    deep = max(row["depth"] for row in rows if "depth" in row)
    for name, (_, _, colour, marker) in VARIANTS.items():
        own = [row for row in rows if row["variant"] == name]
        trained, begun = ([row for row in own if row["part"] == part] for part in ("depth", "gradient"))
        larger = [row for row in own if row["part"] == "gain" or row.get("depth") == deep]
        panels = [(depth, trained, "depth", "loss"), (gradient, begun, "block", "gradient")]
        panels += [(gain, larger, "gain", "loss")] if len(larger) > 1 else []
        for axes, points, across, up in panels:
            axes.plot(
                *zip(*((row[across], row[up]) for row in points), strict=True), color=colour, marker=marker, label=name
            )
    depths = [row["depth"] for row in trained]
    for axes in (depth, gain):
        axes.axhline(GUESS, color=GREY, linestyle=":")
        axes.annotate("guessing", (1, GUESS), xytext=(0, 4), textcoords="offset points", color="0.3")
        axes.set_ylabel("loss after training (nats)")
    depth.set(title="Deeper and deeper", xlabel="blocks", ylim=(-0.1, 2.8), xscale="log")
    depth.set_xticks(depths, depths)
    depth.minorticks_off()
    gradient.set(title=f"Gradient before training, {deep} blocks", xlabel="block (1 reads the embeddings)")
    gradient.set(ylabel="length of the gradient", yscale="log")
    gain.set(title=f"From larger numbers, {deep} blocks", xlabel="matrices begin so many times as large")
    figure.legend(*depth.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure
