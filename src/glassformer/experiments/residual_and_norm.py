"""residual-and-norm: depth without residual connections or norms does not train.

The same stack of blocks with its two helpers taken away: the path round each part (x + part(x)), and the norm. What is
left is a product of many matrices, through which neither the numbers nor their gradients come in their right size.

B sequences, T length, D model width
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from matplotlib.figure import Figure
from torch import Tensor, nn

from glassformer.errors import TrainingError
from glassformer.experiments.batches import COUNTED, MODULUS, counting
from glassformer.experiments.charts import bands, legend_below, log_ticks, mark_level, panels
from glassformer.experiments.finding import Finding, Row, Rows
from glassformer.experiments.measures import mean_loss
from glassformer.experiments.small import Small, blocks_of
from glassformer.experiments.trial import Trial, told_rates
from glassformer.looking.style import BLACK, BLUE, GREEN, ORANGE, PINK
from glassformer.models import DecoderOnly
from glassformer.parts.norms import LayerNorm, PostNorm, PreNorm, Residual
from glassformer.parts.schemes import learned
from glassformer.tasks.gathering import TokenBatch, token_loss
from glassformer.tasks.objective import Objective

CLAIM = "Depth without residual connections or norms does not train."
ORDER = 100  # in the story

WIDTH, RATES = 32, (2e-3, 8e-3)
TRAINED, FAILED = 0.5, 0.9  # of the loss of guessing: below, it trains; above, it does not
WORST = 10.0  # nats: what is lost beyond that is not worth a picture
GUESS = math.log(MODULUS)  # the loss of somebody who knows nothing


Setting = tuple[str, int, float]  # variant, depth, and how many times as large its matrices begin


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
LARGER = (PRE, RESIDUAL)  # which also begin from larger matrices
PATIENCE = {PRE: 2, POST: 3, RESIDUAL: 1, NORM: 3, NEITHER: 3}  # times as many steps: until curves have settled
COLOURS = {PRE: BLUE, POST: GREEN, RESIDUAL: PINK, NORM: ORANGE, NEITHER: BLACK}


def run(
    trial: Trial,
    steps: int = 160,
    depths: Sequence[int] = (1, 6),
    gains: Sequence[float] = (3.0,),
    new: int = 500,
) -> Finding:
    """The same training at several depths with and without each; then with and without norms from larger numbers."""
    deep = max(depths)
    settings = [(name, depth, 1.0) for depth in depths for name in VARIANTS]
    settings += [(name, deep, gain) for name in LARGER for gain in gains]
    tuned = trial.tuned("training", partial(_trained, steps=steps, new=new), settings, RATES)
    rows = Rows(row | {"rate": each.rate} for each in tuned.values() for row in each.results)
    for each in trial.seeds():
        for name in VARIANTS:
            lengths = enumerate(_gradients(each.begin(_model, name, deep, 1.0), each.new(counting)), start=1)
            row = {"part": "gradient", "seed": each.seed, "variant": name}
            rows += [{**row, "block": block, "gradient": length} for block, length in lengths]
    losses = rows.where(part="loss").spreads("loss", by=("variant", "depth", "gain"))
    first = rows.where(block=1).spreads("gradient", by="variant")
    keys = {PRE: "pre", POST: "post", RESIDUAL: "residual_only", NORM: "norm_only", NEITHER: "neither"}
    facts: dict[str, float] = {
        **{key: losses[name, deep, 1.0] for name, key in keys.items()},
        **{f"{key}_shallow": losses[name, min(depths), 1.0] for name, key in keys.items()},
        **{f"{key}_from_{gain:g}": losses[n, deep, gain] for n, key in keys.items() for gain in gains if n in LARGER},
        **{f"first_gradient_{key}": first[name] for name, key in keys.items()},
    }
    fails = {name: losses[name, deep, 1.0].low > FAILED * GUESS for name in VARIANTS}
    trains = {name: losses[name, deep, 1.0].high < TRAINED * GUESS for name in VARIANTS}
    alone = {RESIDUAL: "without norms", NORM: "without residuals", NEITHER: "without both"}
    enough = " and ".join(told for name, told in alone.items() if trains[name])
    from_large = {
        name: ", ".join(f"{losses[name, deep, gain]:.2f} from {gain:g} times as large" for gain in gains)
        for name in LARGER
    }
    return Finding(
        method=f"Decoders of {' and '.join(map(str, depths))} blocks learned to go on with sequences that count up by "
        f"a constant modulo {MODULUS}, from the same initialisation, each {told_rates(RATES)}; with residuals alone "
        f"for {steps} steps, with norms before the parts as well for {PATIENCE[PRE] * steps}, the others, which learn "
        f"more slowly, for {PATIENCE[NEITHER] * steps}. The loss is that of {new} new sequences, at most {WORST:g}. At "
        f"{deep} blocks, residuals with and without norms "
        f"also began with matrices {' and '.join(f'{gain:g}' for gain in gains)} times as large. The gradient is that "
        "of the loss by each block's parameters before the first step. A variant trains if its loss ends below "
        f"{TRAINED:.0%} of that of guessing at every seed, and does not if it stays above {FAILED:.0%}.",
        measured=f"With {deep} blocks, where guessing has a loss of {GUESS:.2f} nats, residuals and norms before each "
        f"part reach {losses[PRE, deep, 1.0]:.2f} in {PATIENCE[PRE] * steps} steps, and {losses[POST, deep, 1.0]:.2f} "
        f"in {PATIENCE[POST] * steps} with the norm after the sum. Without norms, residuals alone reach "
        f"{losses[RESIDUAL, deep, 1.0]:.2f} in {steps}. Without residuals the loss is {losses[NORM, deep, 1.0]:.2f} "
        f"with norms and {losses[NEITHER, deep, 1.0]:.2f} without, in {PATIENCE[NEITHER] * steps} (one block alone: "
        f"{losses[NORM, min(depths), 1.0]:.2f} and {losses[NEITHER, min(depths), 1.0]:.2f}). "
        + (f"So depth trains {enough}. " if enough else "")
        + f"Norms matter where matrices begin too large: {from_large[PRE]} with them, {from_large[RESIDUAL]} without. "
        f"The gradient that arrives at the first block before training is {float(first[PRE]):.1g} with both and "
        f"{float(first[NEITHER]):.1g} with neither.",
        holds=trains[PRE] and all(fails[name] for name in (RESIDUAL, NORM, NEITHER)),
        facts=facts,
        rows=rows,
        draw=lambda: _draw(rows, depths),
        seeds=[each.seed for each in trial.seeds()],
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


def _trained(trial: Trial, setting: Setting, rate: float, steps: int, new: int) -> tuple[float, Row]:
    """Losses after training, at most `WORST`, also where it ended in numbers that are none."""
    name, depth, gain = setting
    model = trial.begin(_model, name, depth, gain)
    try:
        trial.learn("", model, counting, token_loss, PATIENCE[name] * steps, rate)
        held, last = (mean_loss(model, draw(counting, count=new), token_loss) for draw in (trial.held_out, trial.new))
    except TrainingError:
        held = last = WORST
    loss = min(last, WORST) if math.isfinite(last) else WORST
    return held, {"part": "loss", "seed": trial.seed, "variant": name, "depth": depth, "gain": gain, "loss": loss}


def _gradients(model: DecoderOnly, batch: TokenBatch) -> list[float]:
    """How long the gradient by each block's parameters is, from the first block to the last."""
    (Objective(model, token_loss)(batch) / batch.targets).backward()
    blocks = [[each.grad for each in block.parameters() if each.grad is not None] for block in blocks_of(model)]
    lengths = [nn.utils.get_total_norm(gradients).item() for gradients in blocks]
    model.zero_grad()
    return lengths


def _draw(rows: Rows, depths: Sequence[int]) -> Figure:
    figure, (depth, gradient, gain) = panels(3, 10.5, 4.2)
    deep, losses = max(depths), rows.where(part="loss")
    bands(depth, losses.where(gain=1.0), "depth", "loss", "variant", COLOURS)
    bands(gradient, rows.where(part="gradient"), "block", "gradient", "variant", COLOURS)
    bands(gain, losses.where(depth=deep), "gain", "loss", "variant", {name: COLOURS[name] for name in LARGER})
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
