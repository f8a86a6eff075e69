"""Plots of attention: one head, all heads, lines, alignments, and how a head came to be.

L layers, H heads, T tokens that look, S tokens that are looked at
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from glassformer.errors import InputError
from glassformer.looking.plots.choosing import called, check_size, head_of, heading, isolated, kind_of, wrapped
from glassformer.looking.points import layer_of
from glassformer.looking.sharpest import Head
from glassformer.looking.style import BLUE, GREY, HEAT, ORANGE, chart_style, ink_on
from glassformer.looking.trace import Trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDEST = 12.0  # inches
LETTER, COLUMN = 0.115, 9.0  # inches of a letter of a text, and of the longest text that can be read in a column
FAINT = 0.04  # weights below are no line
SHOWN = 6  # steps of a training
MOST_SMALL = 300  # tokens on a side of a plot without names
MOST_PANELS = 400
GROWN = 40  # tokens on a side of a map of a step
HALF = 0.5
NUMBERS = 12  # tokens on a side up to which cells show their numbers


def attention(trace: Trace, layer: int | None, head: int | None, kind: str | None, sentence: int) -> Figure:
    """A heat map of one head: each row is a token that looks, each column a token that is looked at."""
    from matplotlib.figure import Figure

    found = head_of(trace, layer, head, kind, sentence)
    check_size(len(found.rows), len(found.columns))
    with chart_style([*found.rows, *found.columns, trace.input, trace.output]):
        size = (2.3 + 0.36 * len(found.columns) + _letters(found.rows), 1.5 + 0.33 * len(found.rows))
        figure = Figure(figsize=_within(size[0], size[1] + _letters(found.columns)), layout="constrained")
        axes = figure.subplots()
        image = _map(axes, found)
        _named(axes, found)
        _counted(axes, found)
        bar = figure.colorbar(image, ax=axes, label="attention weight", shrink=0.8, aspect=18)
        bar.outline.set_visible(False)
        _title(figure, found.title, trace)
    return figure


def _map(axes: Any, head: Head) -> Any:
    """The weights of a head as colours."""
    axes.grid(visible=False)
    for side in axes.spines.values():
        side.set(visible=True, color=GREY, linewidth=0.5)
    return axes.imshow(head.weights.numpy(), cmap=HEAT, vmin=0, vmax=1, aspect="auto", interpolation="nearest")


def _named(axes: Any, head: Head) -> None:
    """Names on the axes: those that look on the left, those that are looked at above."""
    axes.set_xticks(
        range(len(head.columns)), head.columns, rotation=45, ha="left", rotation_mode="anchor", parse_math=False
    )
    axes.set_yticks(range(len(head.rows)), head.rows, parse_math=False)
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    axes.tick_params(length=0)
    axes.set_xlabel("is read", color=GREY, loc="left")
    axes.set_ylabel("is written" if ".cross" in f".{head.name}" else "reads", color=GREY, loc="top")


def _counted(axes: Any, head: Head) -> None:
    """The numbers in the cells, where there is room and something to see."""
    if max(head.weights.shape) > NUMBERS:
        return
    for row, weights in enumerate(head.weights.tolist()):
        for column, weight in enumerate(weights):
            if weight >= 0.1:
                colour = ink_on(weight)
                axes.text(column, row, f"{weight:.1f}", ha="center", va="center", color=colour, fontsize=7.5)


def heads(trace: Trace, kind: str | None, sentence: int) -> Figure:
    """All heads as small maps: a row for each layer, a column for each head."""
    from matplotlib.figure import Figure

    kind = kind_of(trace, kind)
    layers = trace.attentions(kind)
    numbers = [trace.axes(name, sentence)["head"] for name in layers]
    across = max(map(len, numbers))
    if len(layers) * across > MOST_PANELS:
        raise InputError(f"{len(layers)} layers of {across} heads are too many for one plot: record fewer by layers=")
    first = head_of(trace, layer_of(layers[0]) or 0, numbers[0][0], kind, sentence)
    if max(len(first.rows), len(first.columns)) > MOST_SMALL:
        longest = max(len(first.rows), len(first.columns))
        raise InputError(
            f"there are {longest:,} tokens, and small maps have room for {MOST_SMALL}: take a shorter text"
        )
    with chart_style([trace.input, trace.output]):
        side = min(1.35, WIDEST / (across + 1))
        tall = side * min(1.6, max(0.6, len(first.rows) / max(len(first.columns), 1)))
        size = (max(side * across + 0.9, 4.2), tall * len(layers) + 1.1)
        figure = Figure(figsize=size, layout="constrained")
        panels = figure.subplots(len(layers), across, squeeze=False)
        for row, layer in enumerate(layers):
            for column, axes in enumerate(panels[row]):
                axes.set(xticks=[], yticks=[])
                if column >= len(numbers[row]):
                    axes.set_visible(False)
                    continue
                found = head_of(trace, layer_of(layer) or 0, numbers[row][column], kind, sentence)
                image = _map(axes, found)
                if row == 0:
                    axes.set_title(f"head {numbers[row][column]}", loc="center", fontsize=8.5, weight="normal")
            panels[row, 0].set_ylabel(f"layer {layer_of(layer) or 0}", fontsize=8.5)
        bar = figure.colorbar(image, ax=panels, label="attention weight", shrink=min(1, 2.5 / size[1]), aspect=14)
        bar.outline.set_visible(False)
        written = "written" if kind.endswith("cross") else "reading"
        what = f"{called(kind)}, all heads; down: {written} tokens, across: tokens that are read"
        _title(figure, what, trace)
    return figure


def lines(trace: Trace, layer: int | None, head: int | None, kind: str | None, sentence: int) -> Figure:
    """Two columns of tokens, and lines between them as thick as the weights."""
    found = head_of(trace, layer, head, kind, sentence)
    check_size(len(found.rows), len(found.columns))
    with chart_style([*found.rows, *found.columns, trace.input, trace.output]):
        figure, axes, left, right = _columns(found.columns, found.rows)
        for row, weights in enumerate(found.weights.tolist()):
            for column, weight in enumerate(weights):
                if weight >= FAINT:
                    strongest = weight == max(weights)
                    axes.plot(
                        *_curve((0, left[column]), (1, right[row])),
                        color=BLUE if strongest else GREY,
                        linewidth=0.4 + 4.6 * weight,
                        alpha=0.25 + 0.65 * weight,
                        marker="",
                        solid_capstyle="round",
                    )
        axes.text(-0.04, -0.95, "is read", ha="right", color=GREY)
        axes.text(1.04, -0.95, "is written" if ".cross" in f".{found.name}" else "reads", ha="left", color=GREY)
        _title(figure, found.title, trace)
    return figure


def _columns(left: Sequence[str], right: Sequence[str]) -> tuple[Figure, Any, list[float], list[float]]:
    """A figure with names in two columns, at x = 0 and 1, and how far down each of them stands."""
    from matplotlib.figure import Figure

    tall = max(len(left), len(right))
    figure = Figure(figsize=_within(5.2, 1.0 + 0.32 * tall), layout="constrained")
    axes = figure.subplots()
    places = [_places(len(names), tall) for names in (left, right)]
    for names, downs, x, side in zip((left, right), places, (-0.04, 1.04), ("right", "left"), strict=True):
        for name, down in zip(names, downs, strict=True):
            axes.text(x, down, name, ha=side, va="center", fontsize=11, parse_math=False)
    axes.set(xlim=(-0.75, 1.75), ylim=(tall - 0.4, -1.2))
    axes.axis("off")
    return figure, axes, places[0], places[1]


def _places(count: int, tall: int) -> list[float]:
    """Where the tokens of a column stand: spread over the whole height."""
    if count == 1:
        return [(tall - 1) / 2]
    return [number * (tall - 1) / (count - 1) for number in range(count)]


def _curve(begin: tuple[float, float], end: tuple[float, float], count: int = 24) -> tuple[list[float], list[float]]:
    """A line that leaves and arrives level, so that neighbours can be told apart."""
    steps = [number / (count - 1) for number in range(count)]
    bent = [step * step * (3 - 2 * step) for step in steps]
    return [begin[0] + (end[0] - begin[0]) * step for step in steps], [
        begin[1] + (end[1] - begin[1]) * step for step in bent
    ]


def alignment(trace: Trace, layer: int | None, head: int | None, kind: str | None, sentence: int) -> Figure:
    """Two lines of text with a link from each token to the one that it looks at most."""
    found = head_of(trace, layer, head, kind, sentence)
    links = [(row, int(weights.argmax()), float(weights.max())) for row, weights in enumerate(found.weights)]
    return linked(found.rows, found.columns, links, found.title)


def linked(rows: Sequence[str], columns: Sequence[str], links: Sequence[tuple[int, int, float]], title: str) -> Figure:
    """Two lines of text with links (row, column, weight) between them, as wide as the weight; long ones in columns."""
    check_size(len(rows), len(columns))
    weak = "; orange: less than half of the weight" if any(weight < HALF for *_, weight in links) else ""
    with chart_style([*rows, *columns]):
        above, below = (_spaced(names) for names in (columns, rows))
        width = max(above[-1][1], below[-1][1])
        if LETTER * width <= COLUMN:
            figure = _in_lines(rows, columns, links, width)
        else:
            figure, axes, left, right = _columns(columns, rows)
            for row, column, weight in links:
                axes.plot(*_curve((0, left[column]), (1, right[row])), **_link(weight))
        _title(figure, f"{title}{weak}")
    return figure


def _link(weight: float) -> dict[str, Any]:
    """How a link is drawn."""
    colour = BLUE if weight >= HALF else ORANGE
    return {"color": colour, "linewidth": 0.6 + 3 * weight, "alpha": 0.85, "marker": ""}


def _in_lines(
    rows: Sequence[str], columns: Sequence[str], links: Sequence[tuple[int, int, float]], width: float
) -> Figure:
    """Two lines of text, so many letters wide, with links between them."""
    from matplotlib.figure import Figure

    above, below = (_spaced(names) for names in (columns, rows))
    figure = Figure(figsize=_within(max(LETTER * width, 5.6), 2.3), layout="constrained")
    axes = figure.subplots()
    shift = [(width - each[-1][1]) / 2 for each in (above, below)]
    tops, bottoms = ([a + (b - a) / 2 + s for a, b in each] for each, s in zip((above, below), shift, strict=True))
    for names, places, height in ((columns, tops, 1.0), (rows, bottoms, 0.0)):
        for name, place in zip(names, places, strict=True):
            axes.text(place, height, name, ha="center", va="center", fontsize=11.5, parse_math=False)
    for row, column, weight in links:
        down, across = _curve((0.14, bottoms[row]), (0.86, tops[column]))
        axes.plot(across, down, **_link(weight))
    axes.set(xlim=(-1, width + 1), ylim=(-0.25, 1.25))
    axes.axis("off")
    return figure


def _spaced(names: Sequence[str]) -> list[tuple[float, float]]:
    """Where each of some words begins and ends in a line, counted in letters."""
    from rich.cells import cell_len

    found, place = [], 0.0
    for name in names:
        found.append((place, place + max(cell_len(name), 1)))
        place += max(cell_len(name), 1) + 2
    return found


def born(looks: Sequence[tuple[int, Trace]], kind: str | None, sentence: int) -> Figure:
    """One head at some steps of a training, side by side: the one that is the sharpest in the end."""
    from matplotlib.figure import Figure

    last, found = growing(looks, kind, sentence)
    texts = [name for _, head, _ in found for name in (*head.rows, *head.columns)]
    with chart_style([*texts, looks[-1][1].input]):
        width = min(WIDEST + 4, sum(1.2 + 0.2 * len(head.columns) for _, head, _ in found) + 0.6)
        tall = 1.6 + max(0.2 * len(head.rows) for _, head, _ in found) + _letters(last.columns)
        figure = Figure(figsize=(max(width, 5), tall), layout="constrained")
        for axes, (step, head, trace) in zip(figure.subplots(1, len(found), squeeze=False)[0], found, strict=True):
            image = _map(axes, head)
            axes.set_xticks(range(len(head.columns)), head.columns, rotation=90, fontsize=7.5, parse_math=False)
            axes.set_yticks(range(len(head.rows)), head.rows, fontsize=7.5, parse_math=False)
            axes.tick_params(length=0)
            axes.set_title(f"step {step:,}", loc="left")
            axes.set_xlabel(wrapped(trace.output, 26), fontsize=7.5, color=GREY, parse_math=False)
        bar = figure.colorbar(image, ax=figure.axes, label="attention weight", shrink=0.7, aspect=14)
        bar.outline.set_visible(False)
        title = wrapped(f"{isolated(looks[-1][1].input)} · {last.title}", 110)
        figure.suptitle(title, fontsize=10, x=0.01, ha="left", parse_math=False)
    return figure


def growing(
    looks: Sequence[tuple[int, Trace]], kind: str | None, sentence: int
) -> tuple[Head, list[tuple[int, Head, Trace]]]:
    """The head that is the sharpest in the end, and the same one at some steps."""
    if not looks:
        raise InputError("there is nothing to show: no step was looked at")
    last = head_of(looks[-1][1], None, None, kind, sentence)
    layer = layer_of(last.name) or 0
    most = min(len(last.rows) + 2, GROWN)
    found = [(step, head_of(each, layer, last.head, kind, sentence), each) for step, each in _spread(looks)]
    return last, [(step, _top(head, most), each) for step, head, each in found]


def _top(head: Head, most: int) -> Head:
    """A head over its first tokens: a model that has learned little may write many."""
    weights = head.weights[:most, :GROWN]
    return replace(head, weights=weights, rows=head.rows[:most], columns=head.columns[:GROWN])


def _spread(looks: Sequence[tuple[int, Trace]]) -> list[tuple[int, Trace]]:
    """At most so many steps as are shown: the first and the last, and the early ones, in which most happens."""
    if len(looks) <= SHOWN:
        return list(looks)
    last = len(looks) - 1
    places = sorted({round(last * (number / (SHOWN - 1)) ** 2) for number in range(SHOWN)})
    left = [place for place in range(len(looks)) if place not in places]
    return [looks[place] for place in sorted([*places, *left[: SHOWN - len(places)]])]


def _letters(names: Sequence[str]) -> float:
    """The inches that names need beside an axis."""
    return 0.075 * max(map(len, names))


def _within(width: float, height: float) -> tuple[float, float]:
    return max(width, 3.4), max(height, 2.0)


def _title(figure: Figure, what: str, trace: Trace | None = None) -> None:
    """What is seen, and of which text."""
    room = max(36, int(figure.get_figwidth() * 15.5))
    lines = ["" if trace is None else wrapped(heading(trace), room), wrapped(f"{what[:1].upper()}{what[1:]}", room)]
    text = "\n".join(line for line in lines if line)
    figure.suptitle(text, fontsize=9, x=0.01, ha="left", parse_math=False)
