"""skip-layers: with residual paths a layer can be left out, as what it would have changed goes past it unchanged.

Stacks learn one task with and without the path round each part. Then each block in turn is taken out of the trained
stack. With residuals the others find the stream that they know, but for one addition; without them, they are given
vectors of another language.

B sequences, T length, D model width
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from glassformer.experiments.batches import COUNTED, MODULUS, counting
from glassformer.experiments.charts import band, legend_below, mark_level, panels
from glassformer.experiments.finding import Finding, Rows
from glassformer.experiments.measures import logits, mean_loss
from glassformer.experiments.residual_and_norm import NoResidual
from glassformer.experiments.small import Small, blocks_of
from glassformer.experiments.trial import Trial
from glassformer.looking.style import BLUE, ORANGE
from glassformer.models import DecoderOnly
from glassformer.parts.norms import PreNorm, Residual
from glassformer.parts.schemes import learned
from glassformer.tasks.gathering import TokenBatch, token_loss

CLAIM = "Residual connections help the model to skip layers if needed."
ORDER = 102  # in the story

WIDTH = 32
WITH, WITHOUT = "with residuals", "without residuals"
VARIANTS: dict[str, Residual] = {WITH: PreNorm, WITHOUT: NoResidual}
COLOURS = {WITH: BLUE, WITHOUT: ORANGE}
RATES = (1e-3, 3e-3, 1e-2)
GUESS = 1 / MODULUS


def run(trial: Trial, steps: int = 400, layers: int = 4) -> Finding:
    """Both learn; then each block is taken out in turn."""
    work = partial(_learned, steps=steps, layers=layers)
    seeds = [each.seed for each in trial.seeds()]
    rows = Rows()
    for name, found in trial.tuned("learning", work, [*VARIANTS], RATES).items():
        for seed, results in zip(seeds, found.results, strict=True):
            rows += [{"variant": name, "rate": found.rate, "seed": seed, **each} for each in results]
    right = rows.spreads("right", by=("variant", "skipped"))
    change = Rows(row for row in rows.where(variant=WITH) if row["skipped"]).spreads("added", by="skipped")
    facts: dict[str, float] = {}
    best = {}
    for name in VARIANTS:
        skipped = {number: right[name, number] for number in range(1, layers + 1)}
        best[name] = max(skipped, key=skipped.__getitem__)
        facts |= {f"all, {name}": right[name, 0], f"best, {name}": skipped[best[name]]}
        facts[f"mean, {name}"] = sum(skipped.values()) / layers
        facts |= {f"without {number}, {name}": value for number, value in skipped.items()}
    kept, lost = right[WITH, best[WITH]], right[WITHOUT, best[WITHOUT]]
    return Finding(
        method=f"Decoders of {layers} blocks, {WIDTH} wide, with residuals and norms before each part, or with norms "
        f"after each part and no residuals, learned for {steps} steps to go on counting modulo {MODULUS}, three times "
        f"each and at the best of the rates {', '.join(f'{rate:g}' for rate in RATES)}. Then each block was taken out "
        "of the trained stack, so that the next one reads what that one would have read. Right is on 300 new "
        "sequences.",
        measured=f"With all {layers} blocks {right[WITH, 0]:.0%} are right with residuals and {right[WITHOUT, 0]:.0%} "
        f"without. Without block {best[WITH]}, the one that is missed least, {kept:.0%} are still right with "
        f"residuals; without residuals it is {lost:.0%} at best (without block {best[WITHOUT]}), and a guess is right "
        f"in {GUESS:.0%}. Over all blocks it is {facts[f'mean, {WITH}']:.0%} and {facts[f'mean, {WITHOUT}']:.0%}. The "
        f"block that changes the stream least, {min(change, key=change.__getitem__)}, adds {min(change.values()):.0%} "
        f"of its length; the one that changes it most, {max(change, key=change.__getitem__)}, "
        f"{max(change.values()):.0%}.",
        holds=min(right[WITH, 0].low, right[WITHOUT, 0].low) > 0.9
        and kept.low > 0.7
        and kept.low > lost.high + 0.2
        and all(right[WITH, number] > right[WITHOUT, number] for number in range(1, layers + 1)),
        facts=facts | {"least_added": min(change.values()), "most_added": max(change.values())},
        rows=rows,
        draw=lambda: _draw(rows, layers),
        seeds=seeds,
    )


def _learned(trial: Trial, name: str, rate: float, steps: int, layers: int) -> tuple[float, list[dict[str, Any]]]:
    """The loss on validation; how many answers are right with all blocks (0), and without each."""
    small = Small(MODULUS, WIDTH, layers=layers, positions=learned, residual=VARIANTS[name], length=COUNTED)
    model = trial.begin(small.language_model)
    trial.learn("", model, counting, token_loss, steps, rate)
    new, blocks, found = trial.new(counting, count=300), blocks_of(model), []
    added = _added(model, new)
    for number in range(layers + 1):
        kept = [block for place, block in enumerate(blocks, start=1) if place != number]
        model.decoder.blocks = nn.ModuleList(kept)
        row = {"skipped": number, "right": _right(model, new), "loss": mean_loss(model, new, token_loss)}
        found.append({**row, "added": added[number - 1] if number else math.nan})
    model.decoder.blocks = blocks
    return mean_loss(model, trial.held_out(counting, count=300), token_loss), found


def _right(model: DecoderOnly, batch: TokenBatch) -> float:
    """How often the right number is the likeliest where one is asked for."""
    found = logits(model, batch.text).argmax(dim=-1) == batch.labels  # (B, T)
    return found[batch.label_mask].float().mean().item()


@torch.no_grad()
def _added(model: DecoderOnly, batch: TokenBatch) -> list[float]:
    """How long what each block adds is, by the length of what it reads."""
    found: list[Tensor] = []
    hooks = [
        block.register_forward_hook(lambda part, given, gave: found.append((gave - given[0]).norm() / given[0].norm()))
        for block in blocks_of(model)
    ]
    logits(model, batch.text)
    for hook in hooks:
        hook.remove()
    return [each.item() for each in found]


def _draw(rows: Rows, layers: int) -> Figure:
    figure, (right, added) = panels(2, 9.5, 3.8, width_ratios=[1.3, 1])
    places = range(layers + 1)
    for name, colour in COLOURS.items():
        found = rows.where(variant=name).spreads("right", by="skipped")
        band(right, [*places], [found[place] for place in places], colour, name)
    mark_level(right, GUESS, "guessing")
    right.set_xticks([*places], ["none", *map(str, places[1:])])
    right.set(title="A block is taken out", xlabel="the block that is taken out", ylim=(0, 1.05))
    right.set_ylabel("right answers on new sequences")
    found = rows.where(variant=WITH).spreads("added", by="skipped")
    band(added, [*places[1:]], [found[place] for place in places[1:]], BLUE, WITH)
    added.set(title="What a block adds to the stream", xlabel="block", ylabel="its length, by that of the stream")
    added.set(ylim=(0, None), xticks=[*places[1:]])
    legend_below(figure, right, columns=2)
    return figure
