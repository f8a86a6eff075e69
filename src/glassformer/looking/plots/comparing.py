"""The plot of two runs on one text: where their streams part, and how far apart their heads are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from glassformer.errors import InputError
from glassformer.looking.plots.choosing import isolated
from glassformer.looking.style import BLUE, GREY, HEAT, ORANGE, chart_style, ink_on

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from glassformer.looking.comparing import Comparison


def difference(found: Comparison) -> Figure:
    """Bars for the stream, point by point, and a map of the heads of each kind of attention."""
    from matplotlib.figure import Figure

    kinds = list(dict.fromkeys(pair.kind for pair in found.heads))
    panels = bool(found.streams) + len(kinds)
    if not panels:
        raise InputError(f"there is nothing to draw: {'; '.join(found.notes)}")
    with chart_style([found.text, *found.outputs]):
        tall = max(2.8, 0.9 + 0.22 * len(found.streams))
        figure = Figure(figsize=(3.6 * bool(found.streams) + 2.6 * len(kinds) + 0.6, tall), layout="constrained")
        widths = [1.5] * bool(found.streams) + [1.0] * len(kinds)
        places = list(figure.subplots(1, panels, squeeze=False, width_ratios=widths)[0])
        if found.streams:
            _bars(places.pop(0), found)
        for axes, kind in zip(places, kinds, strict=True):
            _heads(axes, found, kind)
        outputs = " | ".join(isolated(text[:90]) for text in dict.fromkeys(found.outputs))
        figure.suptitle(f"{isolated(found.text[:70])} → {outputs}", fontsize=9.5, x=0.01, ha="left", parse_math=False)
    return figure


def _bars(axes: Any, found: Comparison) -> None:
    """How much the streams differ at each point; the first that differs is marked."""
    first = found.diverges
    colours = [ORANGE if each is first else BLUE for each in found.streams]
    places = range(len(found.streams))
    axes.barh(places, [each.difference for each in found.streams], color=colours, height=0.7)
    axes.set_yticks(places, [each.point for each in found.streams], fontsize=8)
    axes.set_ylim(len(found.streams) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
    axes.set(title="Difference of the streams", xlabel="|a - b| / |a|" + ("; orange: the first" if first else ""))


def _heads(axes: Any, found: Comparison, kind: str) -> None:
    """The distance of each head to the same one of the other model."""
    pairs = [pair for pair in found.heads if pair.kind == kind]
    layers, heads = max(pair.layer for pair in pairs) + 1, max(pair.head for pair in pairs) + 1
    values = np.full((layers, heads), np.nan)
    for pair in pairs:
        values[pair.layer, pair.head] = np.nan if pair.distance is None else pair.distance
    axes.imshow(values, cmap=HEAT, vmin=0, vmax=1, aspect="auto")
    for row, column in np.ndindex(values.shape):
        value = float(values[row, column])
        colour = GREY if np.isnan(value) else ink_on(value)
        said = "-" if np.isnan(value) else f"{value:.2f}"
        axes.text(column, row, said, ha="center", va="center", fontsize=7.5, color=colour)
    axes.set(title=kind, xlabel="head", ylabel="layer", xticks=range(heads), yticks=range(layers))
    axes.grid(visible=False)
    axes.tick_params(length=0)
