"""batch-vs-layer-norm: why Transformers normalise each token by itself.

Batch norm takes mean and variance over the batch. So a sentence's numbers depend on its batch mates, on how much they
were padded, and on how many there are; in use, when there is no batch, running averages stand in. Layer and RMS norm
look at one token only.

B sentences, T length, N tokens, D model width
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from glassformer.experiments.batches import COUNTED, MODULUS, counting
from glassformer.experiments.charts import band, bars, log_ticks, panels
from glassformer.experiments.finding import Finding, Row, Rows, Spread
from glassformer.experiments.measures import quickest
from glassformer.experiments.small import Small
from glassformer.experiments.trial import Trial, told_rates
from glassformer.looking.style import BLUE, GREEN, GREY, ORANGE, PINK
from glassformer.models import DecoderOnly
from glassformer.parts.norms import BatchNorm, LayerNorm, RMSNorm
from glassformer.parts.schemes import learned
from glassformer.tasks.gathering import TokenBatch, token_loss
from glassformer.tasks.objective import Objective

CLAIM = (
    "Padding corrupts batch norm's statistics and small batches hurt it; "
    "layer and RMS norm do not care, and RMS is cheaper."
)
ORDER = 90  # in the story

PADDED = (3, 6, 12, 25, 50, 103)  # the notes: three words and a hundred zeros
WIDTH, RATES = 32, (3e-3, 8e-3)
FEW = 4  # sequences: from smaller batches models learn for longer, as each teaches less
TIMED = (2048, 512)  # tokens and width
ROUNDS = 20  # of the clock


NAIVE, AWARE, LAYER, RMS = "batch", "batch, told of padding", "layer", "RMS"
NORMS: dict[str, Callable[[int], nn.Module]] = {NAIVE: BatchNorm, AWARE: BatchNorm, LAYER: LayerNorm, RMS: RMSNorm}
TRAINED = (AWARE, LAYER, RMS)  # on sequences without padding, where both batch norms are one
COLOURS = {NAIVE: ORANGE, AWARE: PINK, LAYER: BLUE, RMS: GREEN}


def run(trial: Trial, steps: int = 500, batches: Sequence[int] = (1, 16), new: int = 128) -> Finding:
    """More padding beside the same sentence; smaller batches in the same training; the clock."""
    seeds = trial.seeds()
    rows = Rows(row for each in seeds for row in _padding(each.seed))
    settings = [(name, count) for count in batches for name in TRAINED]
    tuned = trial.tuned("training", partial(_trained, steps=steps, new=new), settings, RATES)
    rows += [row | {"rate": each.rate} for each in tuned.values() for row in each.results]
    rows += [{**row, "round": number} for number in range(len(seeds)) for row in _clock()]
    padding = rows.where(part="padding", length=PADDED[-1]).spreads("change", by="norm")
    gaps = rows.where(part="batch").spreads("gap", by=("norm", "batch"))
    uses = rows.where(part="batch").spreads("use", by=("norm", "batch"))
    times = rows.where(part="time").spreads("microseconds", by=("norm", "way"))
    cost = {
        way: Spread(rms / layer for rms, layer in zip(times[RMS, way].values, times[LAYER, way].values, strict=True))
        for way in ("formula", "kernel")
    }
    few, many = min(batches), max(batches)
    facts: dict[str, float] = {
        "padding_batch": padding[NAIVE],
        "padding_aware": padding[AWARE],
        "padding_layer": max(padding[LAYER].high, padding[RMS].high),
        "gap_few": gaps[AWARE, few],
        "gap_many": gaps[AWARE, many],
        "gap_layer": max(max(abs(gap.low), abs(gap.high)) for (name, _), gap in gaps.items() if name != AWARE),
        **{f"use {name} {count}": loss for (name, count), loss in uses.items()},
        "rms_formula": cost["formula"],
        "rms_kernel": cost["kernel"],
    }
    told = ", ".join(f"{gaps[AWARE, count]:.2f} at {count}" for count in batches)
    cheaper = max(cost["formula"].high, cost["kernel"].high) < 1
    return Finding(
        method=f"One sentence of 3 tokens was normalised beside 7 others while the batch was padded with zeros up to "
        f"{PADDED[-1]} places; the change is that of its normalised numbers, by their length. Then decoders learned "
        f"to go on with sequences that count up by a constant modulo {MODULUS}, in "
        f"{' and '.join(f'{_longer(steps, count)} batches of {count}' for count in batches)}, with each norm, "
        f"{told_rates(RATES)}; the loss of the same {new} new sequences was taken as in training (statistics of "
        f"batches of that size) and as in use (running averages). The time is the least of {ROUNDS} forward passes on "
        f"one thread over {TIMED[0]:,} tokens of width {TIMED[1]}, with PyTorch's kernels and with both formulas "
        "written out in the same few operations.",
        measured=f"A hundred places of padding change what batch norm makes of a sentence by {padding[NAIVE]:.0%}, and "
        f"what layer and RMS norm make of it by {facts['padding_layer']:.1g}; told which places are padding, batch "
        f"norm does not care either ({padding[AWARE]:.1g}). Its loss in use is above that in training by {told} "
        f"sequences a batch (nats); that of layer and RMS norm does not change. At {few} the loss in use is "
        f"{uses[AWARE, few]:.2f} with batch norm, {uses[LAYER, few]:.2f} with layer norm and {uses[RMS, few]:.2f} with "
        f"RMS norm. RMS norm takes {cost['formula']:.2f} times as long as layer norm where both formulas are written "
        f"out, and {cost['kernel']:.1f} times as long with PyTorch's own CPU kernels"
        + ("." if cheaper else ", which fuse layer norm only: it is cheaper in arithmetic, and not on this clock."),
        holds=padding[NAIVE].low > 0.2  # padding corrupts batch norm, and not the others
        and facts["padding_layer"] < 1e-5
        and all(
            small > 0.05 + large  # small batches hurt it, and not the others
            for small, large in zip(gaps[AWARE, few].values, gaps[AWARE, many].values, strict=True)
        )
        and facts["gap_layer"] < 1e-3
        and cheaper,
        facts=facts,
        rows=rows,
        draw=lambda: _draw(rows, batches),
        seeds=[each.seed for each in seeds],
    )


def _trained(trial: Trial, setting: tuple[str, int], rate: float, steps: int, new: int) -> tuple[float, Row]:
    """Losses of a model that has learned with this norm from batches of this size, as in use and as in training."""
    name, count = setting
    small = Small(MODULUS, WIDTH, positions=learned, length=COUNTED, norm=NORMS[name])
    model = trial.begin(small.language_model)
    trial.learn("", model, partial(counting, count=count), token_loss, _longer(steps, count), rate)
    drawn = [counting(np.random.default_rng([trial.seed, 2, number]), count) for number in range(new // count)]
    held = [trial.held_out(counting, count=new)]
    use, training = (_loss(model, drawn, mode) for mode in (False, True))
    row: Row = {"part": "batch", "norm": name, "seed": trial.seed, "batch": count}
    return _loss(model, held, training=False), {**row, "use": use, "training": training, "gap": use - training}


def _longer(steps: int, count: int) -> int:
    """For how many steps models learn from batches of so many sequences."""
    return steps * max(1, FEW // count)


def _padding(seed: int) -> Rows:
    """How much the first of 8 sentences changes when the batch is padded more and more."""
    rng = torch.Generator().manual_seed(seed)
    spread = torch.rand(WIDTH, generator=rng) + 0.5
    real = torch.randn(8, PADDED[0], WIDTH, generator=rng) * spread + torch.randn(WIDTH, generator=rng)  # (B, T, D)
    rows = Rows()
    for name, make in NORMS.items():
        norm, first = make(WIDTH), None
        for length in PADDED:
            x = nn.functional.pad(real, (0, 0, 0, length - PADDED[0]))  # (B, T, D)
            keep = (torch.arange(length) < PADDED[0])[None]
            y = (norm(x, keep) if name == AWARE else norm(x))[0, : PADDED[0]].detach()
            first = y if first is None else first
            change = ((y - first).norm() / first.norm()).item()
            rows.append({"part": "padding", "norm": name, "seed": seed, "length": length, "change": change})
    return rows


@torch.no_grad()
def _loss(model: DecoderOnly, batches: list[TokenBatch], training: bool) -> float:
    """The loss of some batches, as in training or as in use."""
    objective = Objective(model, token_loss).train(training)
    total: float = sum(objective(batch).item() for batch in batches)
    return total / sum(batch.targets for batch in batches)


@torch.no_grad()
def _clock() -> list[Row]:
    """What a forward pass takes, in microseconds."""
    x = torch.randn(TIMED)  # (N, D)
    ways: dict[str, Callable[[nn.Module], Tensor]] = {"kernel": lambda norm: norm(x), "formula": partial(_formula, x)}
    return [
        {"part": "time", "norm": name, "way": way, "microseconds": 1e6 * quickest(partial(work, norm), ROUNDS)[1]}
        for way, work in ways.items()
        for name, norm in ((LAYER, LayerNorm(TIMED[1])), (RMS, RMSNorm(TIMED[1])))
    ]


def _formula(x: Tensor, norm: LayerNorm | RMSNorm) -> Tensor:
    """A norm in the operations of its definition."""
    centred = x - x.mean(dim=-1, keepdim=True) if isinstance(norm, LayerNorm) else x
    scaled = centred * torch.rsqrt(centred.square().mean(dim=-1, keepdim=True) + norm.epsilon) * norm.weight
    return scaled + norm.bias if isinstance(norm, LayerNorm) and norm.bias is not None else scaled


def _draw(rows: Rows, batches: Sequence[int]) -> Figure:
    figure, (padding, batch, time) = panels(3, 10.5, 3.6)
    for name, colour in COLOURS.items():
        own = rows.where(part="padding", norm=name).spreads("change", by="length")
        style = "--" if name == RMS else "-"  # so that the line under it is seen
        band(padding, [*own], [*own.values()], colour, name, linestyle=style)
    log_ticks(padding, PADDED)
    padding.set(title="Padding changes a sentence", xlabel="length that 3 words are padded to")
    padding.set(ylabel="change of its normalised numbers")
    gaps = rows.where(part="batch").spreads("gap", by=("norm", "batch"))
    bars(batch, batches, {name: [gaps[name, count] for count in batches] for name in TRAINED}, COLOURS, form="{:.2f}")
    batch.axhline(0, color=GREY, linewidth=0.8)
    batch.set(title="Small batches hurt in use", xlabel="sequences in a batch")
    batch.set(ylabel="loss in use - loss in training (nats)")
    times = rows.where(part="time").spreads("microseconds", by=("norm", "way"))
    costs = {name: [times[name, way] for way in ("formula", "kernel")] for name in (LAYER, RMS)}
    bars(time, ("both formulas\nwritten out", "PyTorch's\nCPU kernels"), costs, COLOURS, form="{:.0f}")
    time.set(title="What a norm costs", ylabel=f"µs for {TIMED[0]:,} tokens of width {TIMED[1]}")
    for axes in (padding, batch, time):
        axes.legend(title="norm")
    return figure
