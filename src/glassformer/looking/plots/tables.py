"""Plots of more that analyses find: nearest tokens, what parts add to the stream, what an order is worth by distance.

L layers, k neighbours, H heads, N distances
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from glassformer.looking.plots.choosing import check_size, name, names
from glassformer.looking.plots.grids import CELL, NAME, colour_bar, entitle, heat, sized, spread, texts_map
from glassformer.looking.style import MARKERS, chart_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from glassformer.looking.analyses.positions import PositionScheme
    from glassformer.looking.analyses.representations import Neighbours
    from glassformer.looking.analyses.residual import Additions

HEADS = 8  # lines that can be told apart


def neighbours(found: Neighbours) -> Figure:
    """The nearest tokens in each layer, darker where they are nearer; in brackets, the number of their text."""
    layers = list(zip(found.tokens, found.places, found.cosine.tolist(), strict=True))
    cells = [
        [f"{name(text)} ({place[0]}) {cosine:.2f}" for text, place, cosine in zip(*layer, strict=True)]
        for layer in layers
    ]
    bold = [[text == found.token for text in row] for row in found.tokens]
    columns = [f"nearest {number + 1}" for number in range(found.cosine.shape[1])]
    title = f'Nearest to "{name(found.token)}" (in brackets: of which text; then the cosine); bold: the same token'
    with chart_style([title, *(text for row in cells for text in row)]):
        wide = max(len(text) for row in cells for text in row)
        figure = sized(1.8 + NAME * max(map(len, found.points)) + (0.2 + NAME * wide) * len(columns),
                       1.2 + 0.3 * len(cells))  # fmt: skip
        axes = figure.subplots()
        image = texts_map(axes, found.cosine.clamp(min=0), found.points, columns, cells, bold)
        colour_bar(figure, image, axes, "cosine")
        entitle(figure, title)
    return figure


def additions(found: Additions) -> Figure:
    """How large what each part adds is beside the stream, and which way it points: along it, or against it."""
    rows = [each.removesuffix(".output") for each in found.ratio.rows]
    columns = names(list(found.ratio.columns))
    check_size(len(rows), len(columns))
    with chart_style(columns):
        margin = NAME * max(map(len, rows))
        tall = 0.8 + 0.24 * len(rows)
        figure = sized(1.9 + margin + max(CELL, 0.1 + NAME * max(map(len, columns))) * len(columns), 0.5 + 2 * tall)
        parts = (
            ("size: |added| / |stream|", found.ratio.values, None),
            ("direction: cosine with the stream", found.cosine.values, 1.0),
        )
        for axes, (said, values, most) in zip(figure.subplots(2, 1), parts, strict=True):
            colour_bar(figure, heat(axes, values, rows, columns, most), axes, "")
            axes.set_title(said)
        entitle(figure, "What each part adds to the stream")
    return figure


def scheme(found: PositionScheme) -> Figure:
    """What the order is worth by distance: a line, or of biases one for each head."""
    lines = found.by_distance
    with chart_style():
        figure = sized(5.6, 2.8)
        axes = figure.subplots()
        if lines.dim() == 1:
            axes.plot(found.distances, lines.tolist(), marker="")
            axes.set_ylabel("similarity")
        else:
            for head in spread(len(lines), HEADS):
                every = max(1, len(found.distances) // 8)
                marker = MARKERS[head % len(MARKERS)]
                axes.plot(found.distances, lines[head].tolist(), label=f"head {head}", marker=marker, markevery=every)
            axes.legend(ncols=2)
            axes.set_ylabel("added to the score")
        axes.set_xlabel("distance in tokens" if min(found.distances) >= 0 else "distance in tokens; below 0: ahead")
        entitle(figure, f"{found.kind} positions of the {found.stack}, by distance")
    return figure
