"""Figures: what was recorded or measured, as a picture or as coloured text.

T target length, S source length, C classes
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from torch import Tensor

from glassformer.errors import InputError
from glassformer.looking.style import BLUE, COLOURS, GREY, INK, MAP, MARKERS, ORANGE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_NUMBERS = 20  # labels up to which a confusion matrix shows its counts
SHORT = 3  # letters of labels that stand upright side by side
LARGEST = 30  # inches of a side: a picture of a thousand tokens must fit into memory
SHADES = " ░▒▓█"  # from no attention to all of it
LOSSES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("loss", "training loss with dropout and smoothing", {"color": GREY, "marker": "", "linewidth": 1.0, "alpha": 0.9}),
    ("train_loss", "training examples", {"color": BLUE, "marker": "o"}),
    ("valid_loss", "validation examples", {"color": ORANGE, "marker": "s"}),
)
OF_LOSS = ("valid_loss", "valid_perplexity", "valid_word_perplexity", "valid_bits_per_byte")  # the same in other units
FRACTIONS = ("accuracy", "f1", "exact")  # scores from 0 to 1, drawn as percentages
ERRORS = {"edits": "edits per 100 words, lower is better"}  # which would dwarf the scores beside them


def attention_figure(weights: Tensor, rows: Sequence[str], columns: Sequence[str], title: str = "") -> Figure:
    """A heat map of attention weights (T, S): each row is a written token, each column a token it looks at."""
    from matplotlib.figure import Figure

    _check(weights, rows, columns)
    longest = max(map(len, title.split("\n")))
    width = max(2.2 + 0.34 * len(columns) + 0.08 * max(map(len, rows)), 0.07 * longest)
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
    return figure


def confusion_figure(counts: Any, labels: Sequence[str], title: str = "") -> Figure:
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
            colour = INK if shares[row, column] > 0.6 else "white"
            axes.text(column, row, str(counts[row, column]), ha="center", va="center", color=colour, fontsize=9)
    axes.set_xlabel("predicted label")
    axes.set_ylabel("true label")
    axes.set_title(title, fontsize=10, parse_math=False)
    figure.colorbar(image, ax=axes, label="fraction of the true label", shrink=0.9)
    return figure


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


def loss_figure(records: Sequence[dict[str, Any]], title: str = "", unit: str = "nats") -> Figure:
    """Losses against steps, from the lines of a run's metrics.jsonl; beside them scores and errors of validation.

    `train_loss` and `valid_loss` are measured alike. The loss that training minimises is drawn thin: it includes
    dropout and label smoothing, so it may lie above both.
    """
    from matplotlib.figure import Figure

    scores = [name for name in dict.fromkeys(chain(*records)) if name.startswith("valid_")]
    curves = {name.removeprefix("valid_"): _points(records, name) for name in scores if name not in OF_LOSS}
    curves = {name: points for name, points in curves.items() if points}
    errors = {name: curves.pop(name) for name in ERRORS if name in curves}
    count = 1 + bool(curves) + len(errors)
    figure = Figure(figsize=(7 if count == 1 else 3 + 4 * count, 4), layout="constrained")
    panels = figure.subplots(1, count, squeeze=False)[0]
    for key, label, style in LOSSES:
        if points := _points(records, key):
            panels[0].plot(*zip(*points, strict=True), label=label, markersize=4, **style)
    for number, (name, points) in enumerate([*curves.items(), *errors.items()]):
        axes = panels[1] if name in curves else panels[count - len(errors) + [*errors].index(name)]
        factor, percent = (100, " (%)") if name in FRACTIONS else (1, "")
        steps, values = [step for step, _ in points], [factor * value for _, value in points]
        style = {"marker": MARKERS[number % len(MARKERS)], "color": COLOURS[number % len(COLOURS)]}
        axes.plot(steps, values, label=f"{name}{percent}", markersize=4, **style)
        axes.set_ylabel(ERRORS.get(name, "score of validation"))
    panels[0].set_ylabel(f"loss ({unit})" if unit else "loss")
    _readable([value for key, *_ in LOSSES for _, value in _points(records, key)], panels[0])
    for axes in panels:
        axes.set_xlabel("step")
        axes.grid(visible=True, alpha=0.25)
        if axes.lines:
            axes.legend(fontsize=8)
    panels[0].set_title(title, fontsize=10, loc="left", parse_math=False)
    return figure


def _points(records: Sequence[dict[str, Any]], key: str) -> list[tuple[int, float]]:
    """The steps and the finite values of one measurement."""
    return [(each["step"], each[key]) for each in records if each.get(key) is not None and math.isfinite(each[key])]


def _readable(values: Sequence[float], axes: Any) -> None:
    """An axis for these values with plain numbers: logarithmic where they differ by more than a factor of ten."""
    if values and min(values) > 0 and max(values) > 10 * min(values):
        from matplotlib.ticker import FormatStrFormatter, LogLocator, NullLocator

        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(FormatStrFormatter("%g"))
        axes.yaxis.set_minor_locator(NullLocator())


def _check(weights: Tensor, rows: Sequence[str], columns: Sequence[str]) -> None:
    if tuple(weights.shape) != (len(rows), len(columns)):
        raise InputError(
            f"weights of the shape {tuple(weights.shape)} do not fit {len(rows)} written and {len(columns)} read tokens"
        )


def _plain(token: str) -> str:
    """A token that rich does not take for markup."""
    return token.replace("[", "\\[")
