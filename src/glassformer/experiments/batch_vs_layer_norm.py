"""batch-vs-layer-norm: why Transformers normalise each token by itself.

Batch norm takes mean and variance over the batch. So a sentence's numbers depend on its batch mates, on how much they
were padded, and on how many there are; in use, when there is no batch, running averages stand in. Layer and RMS norm
look at one token only.

B sentences, T length, N tokens, D model width
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from glassformer.experiments.finding import Finding, Progress, Row, silent
from glassformer.experiments.learning import COUNTED, MODULUS, counting, learn, mean_loss
from glassformer.experiments.small import Scheme, Small
from glassformer.experiments.timing import quickest
from glassformer.looking.style import BLUE, GREEN, GREY, ORANGE, PINK
from glassformer.models import DecoderOnly
from glassformer.parts.norms import BatchNorm, LayerNorm, PaddingAware, RMSNorm
from glassformer.parts.positions import Learned
from glassformer.tasks import language_loss
from glassformer.training.objective import Objective

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAIVE, AWARE, LAYER, RMS = "batch", "batch, told of padding", "layer", "RMS"
COLOURS = {NAIVE: ORANGE, AWARE: PINK, LAYER: BLUE, RMS: GREEN}
PADDED = (3, 6, 12, 25, 50, 103)  # the notes: three words and a hundred zeros
WIDTH = 32
TIMED = (2048, 512)  # tokens and width
ROUNDS = 30  # of the clock


def run(
    seed: int = 0,
    progress: Progress = silent,
    steps: int = 300,
    batches: Sequence[int] = (1, 2, 4, 16),
    new: int = 128,
) -> Finding:
    """More padding beside the same sentence; smaller batches in the same training; the clock."""
    rows = [{"part": "padding", **row} for row in _padding(seed)]
    norms: dict[str, Callable[[int], nn.Module]] = {
        AWARE: lambda width: PaddingAware(BatchNorm(width)),
        LAYER: LayerNorm,
        RMS: RMSNorm,
    }
    for count in batches:
        for name, norm in norms.items():
            torch.manual_seed(seed)
            scheme = Scheme(embedding=Learned(COUNTED, WIDTH))
            model = Small(MODULUS, WIDTH, scheme=scheme, norm=norm).language_model()
            what = f"{name} norm, {count} a batch"
            learn(model, partial(counting, count=count), language_loss, steps, 5e-3, seed, progress, what)
            rows.append({"part": "batch", "norm": name, "batch": count, **_both_modes(model, count, new, seed)})
    rows += [{"part": "time", **row} for row in _clock()]
    worst = {
        name: max(row["change"] for row in rows if row["part"] == "padding" and row["norm"] == name) for name in COLOURS
    }
    gaps = {(row["norm"], row["batch"]): row["use"] - row["training"] for row in rows if row["part"] == "batch"}
    times = {(row["norm"], row["way"]): row["microseconds"] for row in rows if row["part"] == "time"}
    few, many = min(batches), max(batches)
    facts = {
        "padding_batch": worst[NAIVE],
        "padding_aware": worst[AWARE],
        "padding_layer": max(worst[LAYER], worst[RMS]),
        "gap_few": gaps[AWARE, few],
        "gap_many": gaps[AWARE, many],
        "gap_layer": max(abs(gap) for (name, _), gap in gaps.items() if name != AWARE),
        "rms_formula": times[RMS, "formula"] / times[LAYER, "formula"],
        "rms_kernel": times[RMS, "kernel"] / times[LAYER, "kernel"],
    }
    return Finding(
        method=f"One sentence of 3 tokens was normalised beside 7 others while the batch was padded with zeros up to "
        f"{PADDED[-1]} places; the change is that of its normalised numbers, by their length. Then decoders learned "
        f"for {steps} steps to go on with sequences that count up by a constant modulo {MODULUS}, in batches of "
        f"{', '.join(map(str, batches))}, with each norm; the loss of the same {new} new sequences was taken as in "
        "training (statistics of batches of that size) and as in use (running averages). The time is the least of "
        f"{ROUNDS} forward passes on one thread over {TIMED[0]:,} tokens of width {TIMED[1]}, with PyTorch's kernels "
        "and with both formulas written out in the same few operations.",
        measured=f"A hundred places of padding change what batch norm makes of a sentence by "
        f"{facts['padding_batch']:.0%}, and what layer and RMS norm make of it by {facts['padding_layer']:.1g}; told "
        f"which places are padding, batch norm does not care either ({facts['padding_aware']:.1g}). At "
        f"{few} sequence{'s' if few > 1 else ''} a batch its loss in use is {facts['gap_few']:.2f} nats above that in "
        f"training, at {many} {abs(facts['gap_many']):.2f}; that of layer and RMS norm does not change. RMS norm takes "
        f"{facts['rms_formula']:.2f} times as long as layer norm where both formulas are written out, but "
        f"{facts['rms_kernel']:.1f} times as long with PyTorch's own CPU kernels, which fuse layer norm only: cheaper "
        "in arithmetic, not everywhere on the clock.",
        holds=facts["padding_batch"] > 0.2
        and max(facts["padding_layer"], facts["padding_aware"]) < 1e-5
        and facts["gap_few"] > 0.05 + facts["gap_many"]
        and facts["gap_layer"] < 1e-3
        and facts["rms_formula"] < 1,
        facts=facts,
        rows=rows,
        draw=lambda: _draw(rows, batches),
    )


def _padding(seed: int) -> list[Row]:
    """How much the first of 8 sentences changes when the batch is padded more and more."""
    dice = torch.Generator().manual_seed(seed)
    spread = torch.rand(WIDTH, generator=dice) + 0.5
    real = torch.randn(8, PADDED[0], WIDTH, generator=dice) * spread + torch.randn(WIDTH, generator=dice)  # (B, T, D)
    rows: list[Row] = []
    for name in COLOURS:
        norm = {LAYER: LayerNorm, RMS: RMSNorm}.get(name, BatchNorm)(WIDTH).train()
        first: Tensor | None = None
        for length in PADDED:
            x = nn.functional.pad(real, (0, 0, 0, length - PADDED[0]))  # (B, T, D)
            keep = (torch.arange(length) < PADDED[0])[None]
            y = (norm(x, keep) if name == AWARE else norm(x))[0, : PADDED[0]].detach()
            first = y if first is None else first
            rows.append({"norm": name, "length": length, "change": ((y - first).norm() / first.norm()).item()})
    return rows


@torch.no_grad()
def _both_modes(model: DecoderOnly, count: int, new: int, seed: int) -> dict[str, float]:
    """The loss of some new sequences in use, and in batches of `count` as in training."""
    every = [counting(np.random.default_rng([seed, 2, number]), count) for number in range(new // count)]
    answers = sum(batch.answers for batch in every)
    use = sum(mean_loss(model, batch, language_loss) * batch.answers for batch in every) / answers
    objective = Objective(model, loss=language_loss).train()
    return {"use": use, "training": sum(objective(batch).item() for batch in every) / answers}


@torch.no_grad()
def _clock() -> list[Row]:
    """What a forward pass takes, in microseconds."""
    x = torch.randn(TIMED)  # (N, D)
    layer, rms = LayerNorm(TIMED[1]), RMSNorm(TIMED[1])
    ways: dict[tuple[str, str], Callable[[], Tensor]] = {
        (LAYER, "kernel"): lambda: layer(x),
        (RMS, "kernel"): lambda: rms(x),
        (LAYER, "formula"): lambda: _layer_formula(x, layer),
        (RMS, "formula"): lambda: _rms_formula(x, rms),
    }
    return [
        {"norm": name, "way": way, "microseconds": 1e6 * quickest(work, ROUNDS)[1]}
        for (name, way), work in ways.items()
    ]


def _layer_formula(x: Tensor, norm: LayerNorm) -> Tensor:
    centred = x - x.mean(dim=-1, keepdim=True)
    scaled = centred * torch.rsqrt(centred.square().mean(dim=-1, keepdim=True) + norm.epsilon) * norm.weight
    return scaled if norm.bias is None else scaled + norm.bias


def _rms_formula(x: Tensor, norm: RMSNorm) -> Tensor:
    return x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + norm.epsilon) * norm.weight


def _draw(rows: list[Row], batches: Sequence[int]) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.5, 3.6), layout="constrained")
    padding, batch, time = figure.subplots(1, 3)
    for (name, colour), marker, style in zip(COLOURS.items(), "sDo^", ("-", "-", "-", "--"), strict=True):
        own = [row for row in rows if row["part"] == "padding" and row["norm"] == name]
        changes = [row["change"] for row in own]
        padding.plot([row["length"] for row in own], changes, style, color=colour, marker=marker, label=name)
    padding.set(title="Padding changes a sentence", xlabel="length that 3 words are padded to", xscale="log")
    padding.set(ylabel="change of its normalised numbers")
    padding.set_xticks(PADDED, PADDED)
    padding.minorticks_off()
    padding.legend(title="norm")
    for place, (name, colour) in enumerate((name, COLOURS[name]) for name in (AWARE, LAYER, RMS)):
        own = [row for row in rows if row["part"] == "batch" and row["norm"] == name]
        gaps = [row["use"] - row["training"] for row in own]
        batch.bar([number + 0.27 * (place - 1) for number in range(len(own))], gaps, 0.25, color=colour, label=name)
    batch.axhline(0, color=GREY, linewidth=0.8)
    batch.set(
        title="Small batches hurt in use", xlabel="sequences in a batch", ylabel="loss in use - loss in training (nats)"
    )
    batch.set_xticks(range(len(batches)), batches)
    batch.legend(title="norm")
    for place, way in enumerate(("formula", "kernel")):
        for side, name in ((-0.2, LAYER), (0.2, RMS)):
            (value,) = [
                row["microseconds"]
                for row in rows
                if row["part"] == "time" and (row["norm"], row["way"]) == (name, way)
            ]
            bar = time.bar(place + side, value, 0.38, color=COLOURS[name], label=name if place == 0 else None)
            time.bar_label(bar, fmt="%.0f")
    time.set_xticks((0, 1), ("both formulas\nwritten out", "PyTorch's\nCPU kernels"))
    time.set(title="What a norm costs", ylabel=f"µs for {TIMED[0]:,} tokens of width {TIMED[1]}")
    time.legend(title="norm")
    for axes in (batch, time):
        axes.grid(visible=False, axis="x")
    return figure
