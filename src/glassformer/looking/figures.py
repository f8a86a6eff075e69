"""Figures: what was recorded or measured, as a picture or as coloured text.

T target length, S source length, C classes
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from glassformer.errors import InputError
from glassformer.looking.style import MAP, save

MOST_NUMBERS = 20  # labels up to which a confusion matrix shows its counts
SHORT = 3  # letters of labels that stand upright side by side
LARGEST = 30  # inches of a side: a picture of a thousand tokens must fit into memory
SHADES = " ░▒▓█"  # from no attention to all of it


def attention_figure(weights: Tensor, rows: Sequence[str], columns: Sequence[str], path: Path, title: str = "") -> None:
    """A heat map of attention weights (T, S): each row is a written token, each column a token it looks at."""
    from matplotlib.figure import Figure

    _check(weights, rows, columns)
    width = max(2.2 + 0.34 * len(columns) + 0.08 * max(map(len, rows)), 0.07 * len(title))
    height = 1.8 + 0.34 * len(rows) + 0.07 * max(map(len, columns))
    figure = Figure(figsize=(min(width, LARGEST), min(height, LARGEST)), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(weights.float().cpu().numpy(), cmap=MAP, vmin=0, vmax=1, aspect="auto")
    axes.set_xticks(range(len(columns)), columns, rotation=60, ha="right", rotation_mode="anchor", parse_math=False)
    axes.set_yticks(range(len(rows)), rows, parse_math=False)  # $ is a dollar
    axes.set_xlabel("read (source tokens)")
    axes.set_ylabel("written (target tokens)")
    axes.set_title(title, fontsize=10, parse_math=False)
    figure.colorbar(image, ax=axes, label="attention weight", shrink=0.9)
    save(figure, path)


def confusion_figure(counts: Any, labels: Sequence[str], path: Path, title: str = "") -> None:
    """The confusion matrix: counts (C, C), a row for each true label, a column for each predicted one."""
    from matplotlib.figure import Figure

    side = min(3 + 0.45 * len(labels), LARGEST)
    figure = Figure(figsize=(side + 1, side), layout="constrained")
    axes = figure.subplots()
    shares = counts / counts.sum(axis=1, keepdims=True).clip(min=1)
    image = axes.imshow(shares, cmap=MAP, vmin=0, vmax=1)
    turned: dict[str, Any] = (
        {"rotation": 60, "ha": "right", "rotation_mode": "anchor"} if max(map(len, labels)) > SHORT else {}
    )
    axes.set_xticks(range(len(labels)), labels, **turned, parse_math=False)
    axes.set_yticks(range(len(labels)), labels, parse_math=False)
    if len(labels) <= MOST_NUMBERS:
        for row, column in ((r, c) for r in range(len(labels)) for c in range(len(labels))):
            colour = "black" if shares[row, column] > 0.6 else "white"
            axes.text(column, row, str(counts[row, column]), ha="center", va="center", color=colour, fontsize=9)
    axes.set_xlabel("predicted label")
    axes.set_ylabel("true label")
    axes.set_title(title, fontsize=10, parse_math=False)
    figure.colorbar(image, ax=axes, label="fraction of the true label", shrink=0.9)
    save(figure, path)


def attention_text(weights: Tensor, rows: Sequence[str], columns: Sequence[str]) -> str:
    """The same for a terminal, in rich's markup: a line for each written token, a column for each it looks at."""
    from rich.cells import cell_len  # Devanagari, Chinese and marks take other places than they have letters

    _check(weights, rows, columns)
    widths = [max(3, cell_len(column)) for column in columns]
    margin = max(cell_len(row) for row in rows)
    names = [_plain(column) + " " * (width - cell_len(column)) for column, width in zip(columns, widths, strict=True)]
    lines = [f"{'':{margin}}  {' '.join(names)}".rstrip()]
    for row, values in zip(rows, weights.tolist(), strict=True):
        cells = [_shade(value, width) for value, width in zip(values, widths, strict=True)]
        lines.append(f"{' ' * (margin - cell_len(row))}{_plain(row)}  {' '.join(cells)}")
    return "\n".join(lines)


def _shade(weight: float, width: int) -> str:
    """A cell: the fuller and brighter, the greater the weight."""
    return f"[grey{round(30 + 63 * weight)}]{SHADES[round(weight * (len(SHADES) - 1))] * width}[/]"


def loss_figure(records: Sequence[dict[str, Any]], path: Path, title: str = "") -> None:
    """Training and validation loss against steps, from the lines of a run's metrics.jsonl."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for key, label, style in (("loss", "training", "-"), ("valid_loss", "validation", "o-")):
        known = [each for each in records if each.get(key) is not None and math.isfinite(each[key])]
        points = [(each["step"], each[key]) for each in known]
        if points:
            axes.plot(*zip(*points, strict=True), style, label=label, markersize=4)
    axes.set_xlabel("step")
    axes.set_ylabel("loss (nats)")
    axes.set_yscale("log")
    axes.set_title(title, fontsize=10, parse_math=False)
    axes.grid(visible=True, which="both", alpha=0.25)
    if axes.lines:
        axes.legend()
    save(figure, path)


def _check(weights: Tensor, rows: Sequence[str], columns: Sequence[str]) -> None:
    if tuple(weights.shape) != (len(rows), len(columns)):
        raise InputError(
            f"weights of the shape {tuple(weights.shape)} do not fit {len(rows)} written and {len(columns)} read tokens"
        )


def _plain(token: str) -> str:
    """A token that rich does not take for markup."""
    return token.replace("[", "\\[")
