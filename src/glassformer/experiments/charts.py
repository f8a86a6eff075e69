"""Charts: the few kinds of pictures that experiments draw, from the rows of their data.

A line's marker follows from its colour. What only one experiment draws, it draws itself on the axes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from glassformer.experiments.finding import Rows, Spread, without_lone_minus
from glassformer.looking.style import COLOURS, GREY, MARKERS

WHISKER = {"ecolor": "0.3", "elinewidth": 1.2, "capsize": 2}
MARKER = {**dict(zip(COLOURS, MARKERS, strict=True)), GREY: "o"}


def panels(count: int, width: float, height: float, **options: Any) -> tuple[Figure, Any]:
    """A figure of so many inches, and its empty axes side by side."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(1, count, **options)


def line(axes: Axes, x: Sequence[float], y: Sequence[float], colour: str, label: str, **style: Any) -> None:
    """A line in a colour, with the marker of that colour."""
    axes.plot(x, y, **{"color": colour, "marker": MARKER[colour], "label": label, **style})


def lines(
    axes: Axes, rows: Rows, x: str, y: str, by: str, colours: Mapping[str, str], scale: float = 1, **style: Any
) -> None:
    """A line for each value of the column `by` that has a colour and rows: `scale` times column `y` over column `x`."""
    for name, colour in colours.items():
        if own := rows.where(**{by: name}):
            line(axes, own.column(x), [scale * value for value in own.column(y)], colour, name, **style)


def band(axes: Axes, x: Sequence[float], y: Sequence[Spread], colour: str, label: str, **style: Any) -> None:
    """A line through the means, in a band from the lowest to the highest of all seeds."""
    line(axes, x, y, colour, label, **style)
    axes.fill_between(x, [each.low for each in y], [each.high for each in y], color=colour, alpha=0.2, linewidth=0)


def bands(
    axes: Axes, rows: Rows, x: str, y: str, by: str, colours: Mapping[str, str], scale: float = 1, **style: Any
) -> None:
    """As `lines`, of rows of several seeds: those with the same `by` and the same `x` are one point of a band."""
    for name, colour in colours.items():
        if own := rows.where(**{by: name}).spreads(y, by=x):
            scaled = [Spread(scale * value for value in each.values) for each in own.values()]
            band(axes, [*own], scaled, colour, name, **style)


def bars(
    axes: Axes,
    groups: Sequence[Any],
    values: Mapping[str, Sequence[float]],
    colours: Mapping[str, Any],
    form: str = "",
    lying: bool = False,
) -> None:
    """Groups of bars: in each group one bar for each name, with its value in this format, if there is one.

    A bar of several seeds has a whisker from the lowest to the highest. Bars that are `lying` go from the first group
    at the top to the last.
    """
    thick = 0.8 / len(values)
    for number, (name, lengths) in enumerate(values.items()):
        places = [group + (number - (len(values) - 1) / 2) * thick for group in range(len(groups))]
        ranges = [(each - each.low, each.high - each) for each in lengths if isinstance(each, Spread)]
        way: Any = {f"{'x' if lying else 'y'}err": [*zip(*ranges, strict=True)], "error_kw": WHISKER} if ranges else {}
        style = {"color": colours[name], "label": name, **way}
        drawn = (axes.barh if lying else axes.bar)(places, lengths, 0.95 * thick, **style)
        if form:
            told = [form.format(float(length)) for length in lengths]
            for text, label in zip(axes.bar_label(drawn, [*map(without_lone_minus, told)]), told, strict=True):
                if not lying and label != without_lone_minus(label):  # above the line, as nothing is seen below it
                    text.set(y=0, va="bottom")
    if lying:
        axes.set_yticks(range(len(groups)), groups)
        axes.invert_yaxis()
    else:
        axes.set_xticks(range(len(groups)), groups)
    axes.grid(visible=False, axis="y" if lying else "x")


def heat(axes: Axes, table: Any, bar: str | None = None, **style: Any) -> None:
    """A table as colours; with `bar`, a colour bar of this label beside it."""
    image = axes.imshow(table, **style)
    axes.grid(visible=False)
    if bar is not None:
        axes.figure.colorbar(image, ax=axes, label=bar, shrink=0.9)


def note(axes: Axes, text: str, at: tuple[float, float], apart: tuple[float, float], **style: Any) -> None:
    """Words beside a point, so many typographic points apart."""
    axes.annotate(text, at, xytext=apart, textcoords="offset points", **style)


def mark_level(axes: Axes, y: float, text: str, below: bool = False) -> None:
    """A dotted line at a height, and what it means, at its left end."""
    axes.axhline(y, color=GREY, linestyle=":")
    at_left: Any = axes.get_yaxis_transform()
    style: Any = {"va": "top" if below else "bottom", "color": "0.3", "xycoords": at_left}
    style["bbox"] = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1}  # it may stand on a bar
    note(axes, text, (0, y), (2, -3 if below else 3), **style)


def log_ticks(axes: Axes, values: Sequence[float], labels: Sequence[Any] | None = None) -> None:
    """A logarithmic x-axis with ticks at these values and nowhere else."""
    axes.set_xscale("log")
    axes.set_xticks(values, [f"{value:g}" for value in values] if labels is None else labels)
    axes.minorticks_off()


def legend_below(figure: Figure, axes: Axes, columns: int) -> None:
    """One legend for the whole figure: that of these axes."""
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=columns)
