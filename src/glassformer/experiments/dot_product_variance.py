"""dot-product-variance: why attention divides by √d.

If the d numbers of a query and of a key are independent with mean 0 and variance 1, then q · k is a sum of d products
of variance 1, and its variance is d. Scores that far apart make the softmax choose one key and forget the others: its
slope, Σ ∂pᵢ/∂sᵢ = 1 - Σ pᵢ², goes to 0, and nothing is learned through it.

N queries, S keys, d width
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from glassformer.experiments.finding import Finding, Progress, Row, silent
from glassformer.looking.style import BLUE, GREY, ORANGE
from glassformer.parts.attention import dot_similarity, scaled_dot_similarity

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTHS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
KINDS = {"q · k": dot_similarity, "q · k / √d": scaled_dot_similarity}


def run(seed: int = 0, progress: Progress = silent, queries: int = 1000, keys: int = 64) -> Finding:
    """Random queries and keys of many widths: the variance of their scores, and what the softmax makes of them."""
    dice = torch.Generator().manual_seed(seed)
    rows: list[Row] = []
    for done, width in enumerate(WIDTHS, start=1):
        count = max(queries, 64 * queries // width)  # narrow vectors vary more: it takes more of them
        query = torch.randn(count, 1, width, generator=dice)  # (N, 1, d)
        key = torch.randn(count, keys, width, generator=dice)  # (N, S, d)
        for kind, similarity in KINDS.items():
            rows.append({"score": kind, "d": width, **_measure(similarity(query, key).squeeze(1))})
        progress("drawing queries and keys", done, len(WIDTHS))
    dot, scaled = ([row for row in rows if row["score"] == kind] for kind in KINDS)
    facts = {
        "worst_ratio_to_d": max(abs(row["variance"] / row["d"] - 1) for row in dot),
        "worst_ratio_to_1": max(abs(row["variance"] - 1) for row in scaled),
        "slope_unscaled": dot[-1]["slope"],
        "slope_scaled": scaled[-1]["slope"],
        "largest_unscaled": dot[-1]["largest weight"],
        "largest_scaled": scaled[-1]["largest weight"],
    }
    return Finding(
        method=f"For each width d from {WIDTHS[0]} to {WIDTHS[-1]}, {queries:,} or more queries with {keys} keys "
        "each were drawn from a normal distribution and scored by `dot_similarity` and `scaled_dot_similarity` of "
        "`glassformer.parts.attention`. The slope of the softmax is Σ ∂pᵢ/∂sᵢ = 1 - Σ pᵢ², averaged over the queries.",
        measured=f"The variance of q · k is d to within {facts['worst_ratio_to_d']:.0%} at every width, that of "
        f"q · k / √d is 1 to within {facts['worst_ratio_to_1']:.0%}. At d = {WIDTHS[-1]} the unscaled softmax gives "
        f"{facts['largest_unscaled']:.0%} of its weight to one of {keys} keys and keeps a slope of "
        f"{facts['slope_unscaled']:.2f}; scaled, it is {facts['largest_scaled']:.0%} and {facts['slope_scaled']:.2f}.",
        holds=facts["worst_ratio_to_d"] < 0.05
        and facts["worst_ratio_to_1"] < 0.05
        and facts["slope_unscaled"] < facts["slope_scaled"] / 5,
        facts=facts,
        rows=rows,
        draw=lambda: _draw(rows, keys),
    )


def _measure(scores: Tensor) -> dict[str, float]:
    """What there is to say of scores (N, S)."""
    weights = scores.softmax(dim=-1)  # (N, S)
    return {
        "variance": scores.var().item(),
        "largest weight": weights.amax(dim=-1).mean().item(),
        "slope": (1 - weights.square().sum(dim=-1)).mean().item(),
    }


def _draw(rows: list[Row], keys: int) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.4), layout="constrained")
    variance, largest, slope = figure.subplots(1, 3)
    for kind, colour, marker in zip(KINDS, (ORANGE, BLUE), "so", strict=True):
        own = [row for row in rows if row["score"] == kind]
        widths = [row["d"] for row in own]
        for axes, column in ((variance, "variance"), (largest, "largest weight"), (slope, "slope")):
            axes.plot(widths, [row[column] for row in own], color=colour, marker=marker, label=kind)
    variance.plot(WIDTHS, WIDTHS, color=GREY, linestyle=":", marker="", label="d")
    variance.set_yscale("log", base=2)
    variance.legend()
    titles = (
        "Scores spread with the width",
        f"The softmax picks one of {keys} keys",
        "Then its slope is gone",
    )
    labels = ("variance of the scores", "largest attention weight (mean)", "slope of the softmax, 1 - Σ p²")
    for axes, title, label in zip((variance, largest, slope), titles, labels, strict=True):
        axes.set_xscale("log", base=2)
        axes.set(title=title, xlabel="width d of query and key", ylabel=label)
    largest.set_ylim(0, 1)
    slope.set_ylim(0, 1)
    return figure
