"""Figures: what was recorded or measured, as a picture or as coloured text.

H heads, T target length, S source length
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from glassformer.errors import InputError

SHADES = " ░▒▓█"  # from no attention to all of it


def attention_figure(weights: Tensor, rows: Sequence[str], columns: Sequence[str], path: Path, title: str = "") -> None:
    """A heat map of attention weights (T, S): each row is a written token, each column a token it looks at."""
    from matplotlib.figure import Figure

    _check(weights, rows, columns)
    width, height = 2.2 + 0.34 * len(columns), 1.8 + 0.34 * len(rows)
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(weights.float().cpu().numpy(), cmap="viridis", vmin=0, vmax=1, aspect="auto")
    axes.set_xticks(range(len(columns)), columns, rotation=60, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(rows)), rows)
    axes.set_xlabel("read (source tokens)")
    axes.set_ylabel("written (target tokens)")
    axes.set_title(title, fontsize=10)
    figure.colorbar(image, ax=axes, label="attention weight", shrink=0.9)
    figure.savefig(path, dpi=150)


def attention_text(weights: Tensor, rows: Sequence[str], columns: Sequence[str]) -> str:
    """The same for a terminal, in rich's markup: one line a source token, one column a written token."""
    _check(weights, rows, columns)
    widths = [max(3, len(row)) for row in rows]
    margin = max(len(column) for column in columns)
    lines = []
    for index, column in enumerate(columns):
        cells = [
            f"[grey{round(30 + 63 * float(weight))}]{SHADES[round(float(weight) * (len(SHADES) - 1))] * width}[/]"
            for weight, width in zip(weights[:, index], widths, strict=True)
        ]
        lines.append(f"{_plain(column):>{margin}}  {' '.join(cells)}")
    names = " ".join(f"{_plain(row):^{width}}" for row, width in zip(rows, widths, strict=True))
    return "\n".join([*lines, f"{'':>{margin}}  {names}"])


def loss_figure(records: Sequence[dict[str, Any]], path: Path, title: str = "") -> None:
    """Training and validation loss against steps, from the lines of a run's metrics.jsonl."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for key, label, style in (("loss", "training", "-"), ("valid_loss", "validation", "o-")):
        points = [(each["step"], each[key]) for each in records if math.isfinite(each.get(key, math.nan))]
        if points:
            axes.plot(*zip(*points, strict=True), style, label=label, markersize=4)
    axes.set_xlabel("step")
    axes.set_ylabel("loss per token (nats)")
    axes.set_yscale("log")
    axes.set_title(title, fontsize=10)
    axes.grid(visible=True, which="both", alpha=0.25)
    if axes.lines:
        axes.legend()
    figure.savefig(path, dpi=150)


def _check(weights: Tensor, rows: Sequence[str], columns: Sequence[str]) -> None:
    if tuple(weights.shape) != (len(rows), len(columns)):
        raise InputError(
            f"weights of the shape {tuple(weights.shape)} do not fit {len(rows)} written and {len(columns)} read tokens"
        )


def _plain(token: str) -> str:
    """A token that rich does not take for markup."""
    return token.replace("[", "\\[")
