"""Plots of series: a forecast beside what really followed, and which steps a model looks at.

T steps that are read, h steps that are predicted, L layers, H heads
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from glassformer.looking.plots.choosing import wrapped
from glassformer.looking.style import BLACK, BLUE, GREY, HEAT, chart_style
from glassformer.looking.trace import Trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Values = NDArray[np.float64]
MOST_PANELS = 12
MOST_SEASONS = 8  # in a history, up to which each is marked
TALL = 12  # inches: a picture of many heads


@dataclass(frozen=True)
class ForecastPanel:
    """What is drawn of one forecast: the history (T), the forecast (h) by quantile, and what followed, if known."""

    title: str
    history: Values
    quantiles: dict[float, Values]
    truth: Values = field(default_factory=lambda: np.zeros(0))
    ahead: int = 1  # steps from the last of the history to the first of the forecast


def forecast_figure(panels: Sequence[ForecastPanel], title: str = "", season: int = 1) -> Figure:
    """Forecasts below each other, two in a row: the past, the forecast with its interval, and the truth.

    The axis is marked at every `season` steps, if there is one.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import MultipleLocator

    panels = panels[:MOST_PANELS]
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    with chart_style([title, *(panel.title for panel in panels)]):
        figure = Figure(figsize=(4.8 * columns + (2.2 if columns == 1 else 0), 0.9 + 2.3 * rows), layout="constrained")
        grid = figure.subplots(rows, columns, squeeze=False).flatten()
        for axes, panel in zip(grid, panels, strict=False):
            _draw(axes, panel)
            if season > 1 and len(panel.history) <= MOST_SEASONS * season:
                axes.xaxis.set_major_locator(MultipleLocator(season))
        for axes in grid[len(panels) :]:
            axes.set_visible(False)
        for axes in grid[max(0, len(panels) - columns) : len(panels)]:
            axes.set_xlabel("steps from the last one that is read")
        figure.legend(*grid[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
        figure.suptitle(
            wrapped(title, 55 * columns + 20), fontsize=10, fontweight="bold", x=0.01, ha="left", parse_math=False
        )
    return figure


def _draw(axes: Any, panel: ForecastPanel) -> None:
    """One forecast."""
    past = np.arange(1 - len(panel.history), 1)
    steps = panel.ahead + np.arange(len(panel.quantiles[0.5]))
    levels = [*panel.quantiles]
    marker = "o" if len(steps) == 1 else ""
    axes.plot(past, panel.history, color=GREY, marker="", linewidth=1.2, label="history")
    if len(levels) > 1:
        low, high = panel.quantiles[levels[0]], panel.quantiles[levels[-1]]
        held = f"{levels[-1] - levels[0]:.0%} interval"
        if len(steps) == 1:
            axes.vlines(steps, low, high, color=BLUE, alpha=0.4, linewidth=4, label=held)
        else:
            axes.fill_between(steps, low, high, color=BLUE, alpha=0.2, linewidth=0, label=held)
    if len(panel.truth):
        joined = panel.ahead == 1 and marker == ""  # to the last step that is known
        at, values = (
            (np.append(0, steps), np.append(panel.history[-1], panel.truth)) if joined else (steps, panel.truth)
        )
        axes.plot(at, values, color=BLACK, marker=marker, linewidth=1.4, label="truth")
    axes.plot(steps, panel.quantiles[0.5], color=BLUE, marker=marker, linewidth=2, label="forecast")
    axes.axvline(0.5, color=GREY, linewidth=0.8, linestyle=":")
    axes.set_title(panel.title, parse_math=False)


def attention_over_time(trace: Trace, history: Values, title: str = "") -> Figure:
    """A history (T), and below it how much each head of each layer looks at each of its steps, from the last one."""
    from matplotlib.figure import Figure

    weights = trace.attention(trace.shows)[:, 0, :, -1].float()  # (L, H, T)
    layers, heads, steps = weights.shape
    rows = layers * heads
    past = np.arange(1 - steps, 1)
    with chart_style([title]):
        height = min(TALL, 2.6 + 0.22 * rows)
        figure = Figure(figsize=(9, height), layout="constrained")
        top, below = figure.subplots(2, 1, sharex=True, height_ratios=(1.6, max(1.0, 0.22 * rows)))
        top.plot(past, history, color=GREY, marker="o", markersize=2.5, linewidth=1.2)
        top.set_title(wrapped(title, 100), parse_math=False)
        top.set_ylabel("value")
        image = below.imshow(
            weights.reshape(rows, steps).numpy(), cmap=HEAT, vmin=0, aspect="auto", interpolation="nearest",
            extent=(0.5 - steps, 0.5, rows - 0.5, -0.5),
        )  # fmt: skip
        named = [f"layer {layer}, head {head}" for layer in range(layers) for head in range(heads)]
        every = max(1, rows // 24)
        below.set_yticks(range(0, rows, every), named[::every])
        below.grid(visible=False)
        below.tick_params(length=0)
        below.set_xlabel("steps from the last one that is read")
        figure.colorbar(image, ax=below, label="attention", pad=0.01).outline.set_visible(False)
    return figure
