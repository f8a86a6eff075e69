"""dot-product-variance: why attention divides by √d.

If the d numbers of a query and of a key are independent with mean 0 and variance 1, then q · k is a sum of d products
of variance 1, and its variance is d. Scores that far apart make the softmax choose one key and forget the others: its
slope, Σ ∂pᵢ/∂sᵢ = 1 - Σ pᵢ², goes to 0, and nothing is learned through it.

N queries, S keys, d width
"""

from __future__ import annotations

from itertools import pairwise

import torch
from matplotlib.figure import Figure

from glassformer.experiments.charts import bands, panels
from glassformer.experiments.finding import Finding, Row, Rows
from glassformer.experiments.trial import Trial
from glassformer.looking.style import BLUE, GREY, ORANGE
from glassformer.parts.similarity import dot_similarity, scaled_dot_similarity

CLAIM = "The variance of q · k grows as the width d; dividing by √d keeps it at 1 and the softmax alive."
ORDER = 60  # in the story

WIDTHS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
KINDS = {"q · k": dot_similarity, "q · k / √d": scaled_dot_similarity}
COLOURS = {"q · k": ORANGE, "q · k / √d": BLUE}


def run(trial: Trial, queries: int = 1000, keys: int = 64) -> Finding:
    """Random queries and keys of many widths: the variance of their scores, and what the softmax makes of them."""
    seeds = [each.seed for each in trial.seeds()]
    scored = trial.map("drawing queries and keys", _scored, [(seed, queries, keys) for seed in seeds])
    rows = Rows(row for each in scored for row in each)
    dot, scaled = (rows.where(score=kind) for kind in KINDS)
    slopes, largest = (rows.spreads(column, by=("score", "d")) for column in ("slope", "largest weight"))
    plain, divided = KINDS
    wide = WIDTHS[-1]
    facts: dict[str, float] = {
        "worst_ratio_to_d": max(abs(row["variance"] / row["d"] - 1) for row in dot),
        "worst_ratio_to_1": max(abs(row["variance"] - 1) for row in scaled),
        "slope_unscaled": slopes[plain, wide],
        "slope_scaled": slopes[divided, wide],
        "least_slope_scaled": min(slopes[divided, width].low for width in WIDTHS),
        "largest_unscaled": largest[plain, wide],
        "largest_scaled": largest[divided, wide],
    }
    return Finding(
        method=f"For each width d from {WIDTHS[0]} to {wide}, {queries:,} or more queries with {keys} keys each were "
        "drawn from a normal distribution and scored by `dot_similarity` and `scaled_dot_similarity` of "
        "`glassformer.parts.attention`. The slope of the softmax is Σ ∂pᵢ/∂sᵢ = 1 - Σ pᵢ², averaged over the queries.",
        measured=f"The variance of q · k is d to within {facts['worst_ratio_to_d']:.0%} at every width and seed, that "
        f"of q · k / √d is 1 to within {facts['worst_ratio_to_1']:.0%}. At d = {wide} the unscaled softmax gives "
        f"{largest[plain, wide]:.0%} of its weight to one of {keys} keys and keeps a slope of "
        f"{slopes[plain, wide]:.2f}; scaled, it is {largest[divided, wide]:.0%} and {slopes[divided, wide]:.2f}, and "
        f"at no width less than {facts['least_slope_scaled']:.2f}.",
        holds=facts["worst_ratio_to_d"] < 0.05
        and facts["worst_ratio_to_1"] < 0.05
        and facts["least_slope_scaled"] > 0.9
        and all(slopes[plain, two].high < slopes[plain, one].low for one, two in pairwise(WIDTHS))
        and slopes[plain, wide].high < facts["least_slope_scaled"] / 5,
        facts=facts,
        rows=rows,
        draw=lambda: _draw(rows, keys),
        seeds=seeds,
    )


def _scored(seed: int, queries: int, keys: int) -> list[Row]:
    """What the scores of random queries and keys are like, for each width."""
    rng = torch.Generator().manual_seed(seed)
    rows: list[Row] = []
    for width in WIDTHS:
        count = max(queries, 64 * queries // width)  # narrow vectors vary more: it takes more of them
        query = torch.randn(count, 1, width, generator=rng)  # (N, 1, d)
        key = torch.randn(count, keys, width, generator=rng)  # (N, S, d)
        for kind, similarity in KINDS.items():
            scores = similarity(query, key).squeeze(1)  # (N, S)
            weights = scores.softmax(dim=-1)  # (N, S)
            row: Row = {"score": kind, "seed": seed, "d": width, "variance": scores.var().item()}
            row["largest weight"] = weights.amax(dim=-1).mean().item()
            rows.append({**row, "slope": (1 - weights.square().sum(dim=-1)).mean().item()})
    return rows


def _draw(rows: Rows, keys: int) -> Figure:
    figure, (variance, largest, slope) = panels(3, 10, 3.4)
    for axes, column in ((variance, "variance"), (largest, "largest weight"), (slope, "slope")):
        bands(axes, rows, "d", column, "score", COLOURS)
        axes.set_xscale("log", base=2)
        axes.set_xlabel("width d of query and key")
    variance.plot(WIDTHS, WIDTHS, color=GREY, linestyle=":", marker="", label="d")
    variance.set_yscale("log", base=2)
    variance.legend()
    variance.set(title="Scores spread with the width", ylabel="variance of the scores")
    largest.set(title=f"The softmax picks one of {keys} keys", ylabel="largest attention weight (mean)", ylim=(0, 1))
    slope.set(title="Then its slope is gone", ylabel="slope of the softmax, 1 - Σ p²", ylim=(0, 1))
    return figure
