"""Plots of what analyses find: maps of numbers, bars, and the logit lens.

L layers, H heads, R rows, C columns, T places
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from glassformer.errors import InputError
from glassformer.looking.plots.choosing import LONGEST, called, check_size, names, wrapped
from glassformer.looking.points import layer_of
from glassformer.looking.style import (
    BLUE,
    GREEN,
    GREY,
    HEAT,
    INK,
    ORANGE,
    PINK,
    SKY,
    TWO_SIDED,
    YELLOW,
    chart_style,
    ink_on,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from glassformer.looking.analyses.attention import Rollout
    from glassformer.looking.analyses.attribution import Attribution
    from glassformer.looking.analyses.lens import Lens
    from glassformer.looking.analyses.recurrent import Memory
    from glassformer.looking.analyses.representations import PCA
    from glassformer.looking.analyses.residual import LogitAttribution
    from glassformer.looking.analyses.roles import Roles
    from glassformer.looking.analyses.tables import HeadScores
    from glassformer.looking.patching import Effects

NUMBERS = 16  # columns up to which cells show their numbers
LAYERS = 16  # of a lens
PANELS = 4  # maps of layers side by side
CELL, WIDEST, NAME = 0.46, 0.8, 0.075  # inches of a cell with a number, of the widest, and of a letter
READ = {"encoder": "is read", "decoder": "was written before"}
PARTS_OF = {"input_x_gradient": "input × gradient", "integrated_gradients": "integrated gradients"}  # of the logit
KINDS = {"self": BLUE, "cross": ORANGE, "ff": GREEN, "embedding": PINK, "positions": YELLOW, "biases": GREY}


def heat(
    axes: Any,
    values: Tensor,
    rows: Sequence[str],
    columns: Sequence[str],
    most: float | None = None,
    faint: float = 0.05,
) -> Any:
    """A map of numbers with names on both axes; from white to blue, or where some are below 0, from red to blue.

    `most` is the number of the fullest colour; else the largest. Numbers below `faint` of it are not written.
    """
    most = most or float(values.nan_to_num().abs().max()) or 1.0
    signed = bool((values < -1e-3 * most).any())
    style = {"cmap": TWO_SIDED if signed else HEAT, "vmin": -most if signed else 0.0, "vmax": most}
    image = axes.imshow(values.numpy(), aspect="auto", interpolation="nearest", **style)
    axes.set_xticks(range(len(columns)), columns, parse_math=False)
    if _cell(columns)[1]:
        for label in axes.get_xticklabels():
            label.set(rotation=45, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(rows)), rows, parse_math=False)
    axes.grid(visible=False)
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set(visible=True, color=GREY, linewidth=0.5)
    for row, some in enumerate(values.tolist() if len(columns) <= NUMBERS else ()):
        for column, value in enumerate(some):
            if abs(value) >= faint * most:
                colour = ink_on(abs(value) / most)
                axes.text(column, row, number(value), ha="center", va="center", fontsize=7.5, color=colour)
    return image


def _cell(columns: Sequence[str]) -> tuple[float, bool]:
    """How wide a cell is, in inches, and whether the names of columns are turned to fit."""
    needed = NAME * max(map(len, columns)) + 0.1
    return (max(CELL, needed), False) if needed <= WIDEST and len(columns) <= NUMBERS else (CELL, True)


def number(value: float) -> str:
    """A number in a cell: two digits behind the point, one or none where it is large."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def sized(width: float, height: float) -> Figure:
    """An empty figure of so many inches, or a little more."""
    from matplotlib.figure import Figure

    return Figure(figsize=(max(width, 4.2), max(height, 2.0)), layout="constrained")


def colour_bar(figure: Figure, image: Any, axes: Any, label: str) -> None:
    """The colours of a map, beside it."""
    bar = figure.colorbar(image, ax=axes, label=label, shrink=0.9, aspect=18)
    bar.outline.set_visible(False)


def entitle(figure: Figure, text: str) -> None:
    """A title above all of a figure."""
    wide = int(11.5 * figure.get_size_inches()[0])
    figure.suptitle(wrapped(text, wide), fontsize=10, x=0.01, ha="left", weight="bold", parse_math=False)


def grid(values: Tensor, rows: Sequence[str], columns: Sequence[str], title: str, most: float | None = None) -> Figure:
    """A map of numbers with names on both axes."""
    check_size(len(rows), len(columns))
    columns = names(list(columns))
    with chart_style([*rows, *columns, title]):
        margin = NAME * max(map(len, rows))
        figure = sized(
            1.7 + margin + _cell(columns)[0] * len(columns), 1.2 + 0.28 * len(rows) + 0.05 * max(map(len, columns))
        )
        axes = figure.subplots()
        colour_bar(figure, heat(axes, values, rows, columns, most), axes, "")
        entitle(figure, title)
    return figure


def scores(found: HeadScores, title: str) -> Figure:
    """A number for each head: a row for each layer, a column for each head."""
    with chart_style([title]):
        layers, heads = found.values.shape
        figure = sized(1.6 + CELL * heads, 1.3 + 0.32 * layers)
        axes = figure.subplots()
        image = heat(axes, found.values, _layers(found.points), [str(head) for head in found.heads], faint=0.0)
        axes.set(xlabel="head", ylabel="layer")
        colour_bar(figure, image, axes, "")
        entitle(figure, title or _kind(found.points[0]))
    return figure


def _layers(points: Sequence[str]) -> list[str]:
    return [str(layer_of(point) or 0) for point in points]


def _kind(point: str) -> str:
    """The kind of attention of some weights, in words."""
    stack, *_, what = point.removesuffix(".weights").split(".")
    text = called(f"{stack}.{what}")
    return text[:1].upper() + text[1:]


def roles(found: Roles) -> Figure:
    """A map of layers and heads for each role."""
    count, layers, heads = found.values.shape
    across = min(count, 3)
    down = -(-count // across)
    with chart_style():
        figure = sized(across * (0.7 + 0.4 * heads) + 0.9, down * (0.85 + 0.27 * layers) + 0.4)
        panels = figure.subplots(down, across, squeeze=False, sharex=True, sharey=True)
        for axes, role, values in zip(panels.flat, found.roles, found.values, strict=False):
            image = heat(axes, values, _layers(found.points), [str(head) for head in found.heads], most=1.0)
            axes.set_title(role)
            if not values.any():
                axes.text((heads - 1) / 2, (layers - 1) / 2, "none in this text", ha="center", va="center", color=GREY)
        for axes in panels.flat[count:]:
            axes.set_visible(False)
        for axes in panels[-1]:
            axes.set_xlabel("head")
        for axes in panels[:, 0]:
            axes.set_ylabel("layer")
        colour_bar(figure, image, panels, "mean weight")
        entitle(figure, f"{_kind(found.points[0])}: where each head looks")
    return figure


def rollout(found: Rollout) -> Figure:
    """How much of each token that was read is in each token's vector; of a decoder, also of what was written."""
    parts = [("is read", found.values, names(found.columns))]
    if found.prefix is not None and found.prefix_columns is not None:
        parts.append(("was written before", found.prefix, names(found.prefix_columns)))
    most = max(float(values.max()) for _, values, _ in parts)
    return _side_by_side(
        parts, names(found.rows), "Attention rollout: what is in each vector after all layers", "ratio", most
    )


def memory(found: Memory) -> Figure:
    """What the gates have left of each token, at each later one."""
    tokens = names(found.tokens)
    figure = grid(found.kept, tokens, tokens, "What the gates leave of each token (mean of units)", 1.0)
    figure.axes[0].set(xlabel="token that was written into the cell", ylabel="after token")
    return figure


def _side_by_side(
    parts: Sequence[tuple[str, Tensor, list[str]]], rows: list[str], title: str, label: str, most: float
) -> Figure:
    """Maps that share their rows, each with a title and columns of its own."""
    widths = [len(columns) for *_, columns in parts]
    check_size(len(rows), *widths)
    letters = max(len(each) for *_, columns in parts for each in columns)
    with chart_style([*rows, title, *(text for *_, columns in parts for text in columns)]):
        margin = NAME * max(map(len, rows))
        ratios = [_cell(columns)[0] * len(columns) for *_, columns in parts]
        figure = sized(1.9 + margin + sum(ratios), 1.4 + 0.28 * len(rows) + 0.05 * letters)
        panels = figure.subplots(1, len(parts), squeeze=False, width_ratios=ratios, sharey=True)[0]
        signed = any(bool((values < 0).any()) for _, values, _ in parts)
        for axes, (name, values, columns) in zip(panels, parts, strict=True):
            image = heat(axes, values, rows, columns, most)
            if signed:
                image.set(cmap=TWO_SIDED, clim=(-most, most))
            axes.set_title(name, weight="normal", color=GREY)
        colour_bar(figure, image, panels, label)
        entitle(figure, title)
    return figure


# --- the residual stream


def lens(found: Lens) -> Figure:
    """The likeliest token at each place, as it would be after each layer, darker where it is likelier."""
    places, said = names(found.tokens), [names(row) for row in found.texts()]
    shown = spread(len(said), LAYERS)
    check_size(len(places))
    surest = found.probabilities.amax(dim=-1)[shown].T  # (T, L)
    cells = [[said[layer][place] for layer in shown] for place in range(len(places))]
    with chart_style([*places, *(text for row in cells for text in row)]):
        wide = min(max(max(len(text) for row in cells for text in row), 7), LONGEST)
        figure = sized(1.8 + NAME * max(map(len, places)) + (0.25 + NAME * wide) * len(shown), 1.3 + 0.3 * len(cells))
        axes = figure.subplots()
        bold = [[text == row[-1] for text in row] for row in cells]
        image = texts_map(axes, surest, places, lens_names(found, shown), cells, bold)
        colour_bar(figure, image, axes, "probability")
        entitle(figure, "Logit lens: what the model would say after each layer; bold: what it says in the end")
    return figure


def texts_map(
    axes: Any,
    values: Tensor,
    rows: Sequence[str],
    columns: Sequence[str],
    texts: Sequence[Sequence[str]],
    bold: Sequence[Sequence[bool]],
) -> Any:
    """A map of numbers from 0 to 1 with a text in each cell, and the names of columns above."""
    image = heat(axes, values, rows, columns, 1.0, faint=2.0)
    for row, some in enumerate(texts):
        for column, text in enumerate(some):
            colour = ink_on(float(values[row, column]))
            weight = "bold" if bold[row][column] else "normal"
            axes.text(column, row, text, ha="center", va="center", fontsize=8.5, color=colour, weight=weight,
                      parse_math=False)  # fmt: skip
    for label in axes.get_xticklabels():
        label.set(rotation=0, ha="center")
    axes.xaxis.tick_top()
    return image


def lens_names(found: Lens, shown: Sequence[int]) -> list[str]:
    """What the columns of a lens are called: before the first layer, and after each."""
    return ["before" if not number else f"layer {number - 1}" for number in shown]


def spread(count: int, most: int) -> list[int]:
    """At most so many of some numbers from 0, the first and the last among them."""
    if count <= most:
        return list(range(count))
    return sorted({round(number * (count - 1) / (most - 1)) for number in range(most)})


def parts(found: LogitAttribution) -> Figure:
    """How much each part adds to a logit, or to the difference of two, in the order of the model."""
    if len(found.parts) > 2 * 80:
        raise InputError(f"{len(found.parts)} parts are too many for one plot: leave heads=True out")
    labels = [each.partition(".")[2] or each for each in found.parts]
    against = f' and not "{found.against.strip("▁")}"' if found.against is not None else ""
    title = f'Why "{found.token.strip("▁")}"{against}: what each part adds'
    with chart_style([title]):
        figure = sized(6.2, 1.2 + 0.2 * len(labels))
        axes = figure.subplots()
        _bars(axes, found.values, labels, [_part_colour(each) for each in found.parts])
        axes.set_xlabel(f"part of the {'difference of logits' if against else 'logit'}, {found.logit:.2f} in all")
        entitle(figure, title)
    return figure


def _part_colour(part: str) -> str:
    return next((colour for name, colour in KINDS.items() if name in part.split(".")), SKY)


def _bars(axes: Any, values: Tensor, labels: Sequence[str], colours: Sequence[str]) -> None:
    """Lying bars with their numbers, the first above."""
    numbers, places = values.tolist(), range(len(labels))
    axes.barh(places, numbers, color=colours, height=0.72)
    axes.axvline(0, color=INK, linewidth=0.8)
    reach = max(map(abs, numbers)) or 1.0
    for place, value in zip(places, numbers, strict=True):
        beside = 0.012 * reach * (1 if value >= 0 else -1)
        axes.text(value + beside, place, f"{value:+.2f}", ha="left" if value >= 0 else "right", va="center",
                  fontsize=7.5, color=GREY)  # fmt: skip
    low, high = min(*numbers, 0.0), max(*numbers, 0.0)
    axes.set_xlim(low - (0.16 * reach if low < 0 else 0.02 * reach), high + 0.16 * reach)
    axes.set_yticks(places, labels, parse_math=False)
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)


# --- attribution and patching


def attribution(found: Attribution) -> Figure:
    """One output: bars for what was read. Several: a map, a row for each."""
    kept = [column for column in range(len(found.columns)) if speaks(found, column)]
    if not kept:
        raise InputError("nothing that was read speaks for this output")
    columns = names([found.columns[column] for column in kept])
    values, stacks = found.values[:, kept], [found.stacks[column] for column in kept]
    check_size(len(found.rows), len(columns))
    against = f' and not "{found.against}"' if found.against is not None else ""
    if len(found.rows) == 1:
        title = f'Why "{found.rows[0]}"{against}: what speaks for it'
        with chart_style([title, *columns]):
            figure = sized(5.6, 1.3 + 0.26 * len(columns))
            axes = figure.subplots()
            _bars(axes, values[0], columns, [BLUE if each == stacks[0] else SKY for each in stacks])
            other = "; light: what was written before" if len(set(stacks)) > 1 else ""
            unit = "the difference of logits" if against else "the logit"
            part = PARTS_OF.get(found.method)
            axes.set_xlabel(f"{part}: part of {unit}{other}" if part else f"how much {unit} loses without it{other}")
            entitle(figure, title)
        return figure
    some = []
    for stack in dict.fromkeys(stacks):
        own = [number for number, each in enumerate(stacks) if each == stack]
        some.append((READ.get(stack, "is read"), values[:, own], [columns[number] for number in own]))
    title, label = f"Why each of these{against}: how much its logit loses without each word", "lost logit"
    if (part := PARTS_OF.get(found.method)) is not None:
        title, label = f"Why each of these{against}: {part}", "part of the logit"
    return _side_by_side(some, names(found.rows), title, label, float(values.abs().max()))


def speaks(found: Attribution, column: int) -> bool:
    """Whether an output can have seen a word: not one that was written later, nor the start of what is written."""
    if found.stacks[column] != "decoder":
        return True
    return found.columns[column] != "start" and bool((found.values[:, column].abs() > 1e-4).any())


def effects(found: Effects) -> Figure:
    """How much of the clean answer comes back by a patch at each place."""
    title = "How much of the clean answer a patch brings back"
    figure = grid(found.effects, found.points, found.labels, title, max(1.0, float(found.effects.abs().max())))
    figure.axes[0].set_xlabel("position" if found.over == "positions" else "head")
    return figure


def components(found: PCA) -> Figure:
    """The tokens of some texts as points, layer by layer."""
    from glassformer.looking.plots.vectors import scatter

    if found.values.shape[-1] < 2:
        raise InputError("a map needs two components: pca(traces, components=2)")
    check_size(len(found.tokens))
    shown, colours = spread(len(found.points), PANELS), (BLUE, ORANGE, GREEN, PINK, SKY, YELLOW)
    of_text = [colours[text % len(colours)] for text in found.texts]
    with chart_style(found.tokens):
        down = -(-len(shown) // 2)
        figure = sized(8.6, 3.6 * down)
        for axes, layer in zip(figure.subplots(down, 2, squeeze=False).flat, shown, strict=False):
            scatter(axes, found.values[layer, :, :2], names(found.tokens), of_text)
            axes.set_title(found.points[layer])
            one, two = (f"{each:.0%}" for each in found.explained[layer, :2].tolist())
            axes.set(xlabel=f"component 1 ({one} of the variance)", ylabel=f"component 2 ({two})")
        entitle(figure, "Tokens in the main directions of each layer; a colour for each text")
    return figure
