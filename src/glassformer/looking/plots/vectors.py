"""Plots of vectors: positions, embeddings, the gates of recurrent layers.

T tokens, D width, W width of a state
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from glassformer.errors import InputError
from glassformer.looking.plots.choosing import check_size, isolated, names, wrapped
from glassformer.looking.points import stack_of
from glassformer.looking.style import BLACK, BLUE, GREY, MAP, ORANGE, TWO_SIDED, chart_style
from glassformer.looking.trace import Trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GATES = ("forget", "input", "output", "reset", "update")  # those that open and close, from 0 to 1
DOT = 2.5  # half the size of a point
FEWEST = 3  # tokens of which a map says something


def vectors_of(trace: Trace, ending: str, stack: str | None, sentence: int, what: str) -> tuple[str, Tensor, list[str]]:
    """The vectors of one point in one sentence: its name, (T, D), and its tokens."""
    found = [name for name in trace.names if name.endswith(f".{ending}") and name.count(".") == 1]
    chosen = [name for name in found if stack is None or stack_of(name) == stack]
    if not chosen:
        where = f" in the {stack}" if found else ""
        raise InputError(f"{what}{where}")
    x = trace[chosen[0]]
    tokens = names(trace.axes(chosen[0], sentence)["token"])
    return chosen[0], x[sentence].float(), tokens


def alike(x: Tensor) -> Tensor:
    """The cosine of the angle between each two of some vectors (T, D): (T, T)."""
    x = torch.nn.functional.normalize(x, dim=-1)
    return x @ x.T


def positions(trace: Trace, stack: str | None, sentence: int) -> Figure:
    """The vectors of positions as a heat map, and beside it how alike each two are."""
    from matplotlib.figure import Figure

    none = "nothing is added to embeddings for positions: this model rotates, biases, or counts by recurrence"
    name, x, tokens = vectors_of(trace, "positions", stack, sentence, none)
    check_size(len(tokens))
    with chart_style(tokens):
        figure = Figure(figsize=(9, 1.6 + 0.24 * len(tokens)), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=(3, 2))
        most = float(x.abs().max()) or 1.0
        image = left.imshow(x.numpy(), cmap=TWO_SIDED, vmin=-most, vmax=most, aspect="auto", interpolation="nearest")
        left.set_yticks(range(len(tokens)), [f"{text}  {place}" for place, text in enumerate(tokens)], parse_math=False)
        left.set(xlabel="feature", title=f"What is added for each position ({stack_of(name)})")
        figure.colorbar(image, ax=left, shrink=0.8).outline.set_visible(False)
        image = right.imshow(alike(x).numpy(), cmap=TWO_SIDED, vmin=-1, vmax=1, aspect="auto", interpolation="nearest")
        right.set(xlabel="position", title="How alike they are (cosine)")
        for axis in (right.xaxis, right.yaxis):
            axis.get_major_locator().set_params(integer=True)
        figure.colorbar(image, ax=right, shrink=0.8).outline.set_visible(False)
        for axes in (left, right):
            axes.grid(visible=False)
            axes.tick_params(length=0)
    return figure


def embeddings(trace: Trace, stack: str | None, sentence: int) -> Figure:
    """The tokens of a text as points in the plane of the two largest principal components."""
    from matplotlib.figure import Figure

    name, x, tokens = vectors_of(trace, "embedding", stack, sentence, "no embeddings were recorded")
    stack = stack_of(name)
    panels = [("As they enter", x)]
    after = [each for each in trace.names if stack_of(each) == stack and _is_end(each)]
    if after and trace[after[-1]].shape[1] == len(x):
        panels.append((f"As they leave ({after[-1]})", trace[after[-1]][sentence].float()))
    check_size(len(tokens))
    if len(tokens) < FEWEST:
        raise InputError(f"a map of {len(tokens)} tokens shows nothing: take a text of {FEWEST} or more")
    with chart_style([*tokens, trace.input]):
        figure = Figure(figsize=(4.6 * len(panels), 4.2), layout="constrained")
        for axes, (title, vectors) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
            _map(axes, vectors, tokens)
            axes.set_title(title)
        figure.suptitle(
            wrapped(f"{isolated(trace.input)} · tokens of the {stack}, two principal components", 100),
            fontsize=9.5, x=0.01, ha="left", parse_math=False,
        )  # fmt: skip
    return figure


def _is_end(name: str) -> bool:
    """Whether a point is what leaves a stack or one of its blocks."""
    return (name.endswith(".output") and name.count(".") == 1) or (name.endswith(".after") and name.count(".") == 2)


def flattened(x: Tensor) -> tuple[Tensor, list[float]]:
    """Vectors (T, D) in the plane of their two largest principal components, (T, 2), with the variance of each."""
    centred = x - x.mean(dim=0)
    _, values, directions = torch.linalg.svd(centred, full_matrices=False)
    parts = values.square() / values.square().sum().clamp_min(1e-30)
    return centred @ directions[:2].T, parts[:2].tolist()


def _map(axes: Any, vectors: Tensor, tokens: list[str]) -> None:
    """Points with names; a line leads from each to the next."""
    points, parts = flattened(vectors)
    axes.plot(points[:, 0].tolist(), points[:, 1].tolist(), color=GREY, linewidth=0.6, alpha=0.5, marker="", zorder=1)
    scatter(axes, points, tokens, [BLUE] * len(tokens))
    axes.set(xlabel=f"component 1 ({parts[0]:.0%} of the variance)", ylabel=f"component 2 ({parts[1]:.0%})")


def scatter(axes: Any, points: Tensor, tokens: list[str], colours: list[str]) -> None:
    """Points (T, 2) with names, which cover neither each other nor a point if there is room.

    Where points differ in colour, names have that of their point. A name without letters, such as a full stop, which
    could be taken for a point, is in quotes.
    """
    tokens = [text if any(letter.isalnum() for letter in text) else f'"{text}"' for text in tokens]
    across, up = points[:, 0].tolist(), points[:, 1].tolist()
    axes.scatter(across, up, color=colours, s=16, zorder=2)
    inks = colours if len(set(colours)) > 1 else [BLACK] * len(tokens)
    for place, (text, offset) in enumerate(zip(tokens, _offsets(points, tokens), strict=True)):
        at = (across[place], up[place])
        axes.annotate(text, at, offset, textcoords="offset points", color=inks[place], parse_math=False)
    axes.margins(0.18)


def _offsets(points: Tensor, tokens: list[str]) -> list[tuple[int, int]]:
    """Where the name of each point stands beside it, in dots: covering no other name or point, if there is room."""
    spans = (points.amax(dim=0) - points.amin(dim=0)).clamp_min(1e-9)
    placed = ((points - points.amin(dim=0)) / spans * torch.tensor([200.0, 170.0])).tolist()  # about as many dots
    taken = [(x - DOT, y - DOT, x + DOT, y + DOT) for x, y in placed]
    found = []
    for (x, y), text in zip(placed, tokens, strict=True):
        width = 7.0 * len(text)
        choices = [(side, up) for up in (4, -12, 16, -24, 28, -36) for side in (4, -4 - round(width))]
        boxes = [(x + side, y + up, x + side + width, y + up + 10) for side, up in choices]
        best = next((number for number, box in enumerate(boxes) if not any(_meet(box, each) for each in taken)), 0)
        taken.append(boxes[best])
        found.append(choices[best])
    return found


def _meet(one: tuple[float, float, float, float], other: tuple[float, float, float, float]) -> bool:
    """Whether two boxes (left, bottom, right, top) overlap."""
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def gate_names(trace: Trace, stack: str | None, layer: int) -> list[str]:
    """The gates of one recurrent layer; a sentence, if there are none."""
    found = [name for name in trace.names if ".gates." in name and name.split(".")[-1] in GATES]
    if not found:
        raise InputError("this model has no gates, or they were not recorded: an LSTM or a GRU has some")
    stack = stack or stack_of(found[0])
    layers = sorted({int(name.split(".")[1]) for name in found if stack_of(name) == stack})
    if not layers:
        raise InputError(f"the {stack} has no gates: there are some in the {stack_of(found[0])}")
    if layer not in layers:
        raise InputError(f"there is no layer {layer}: the {stack} has {len(layers)}, 0 to {layers[-1]}")
    return [name for name in found if name.startswith(f"{stack}.{layer}.gates.")]


def gates(trace: Trace, stack: str | None, layer: int, sentence: int) -> Figure:
    """The gates of a recurrent layer over one sentence."""
    found = gate_names(trace, stack, layer)
    tokens = trace.axes(found[0], sentence)["token"]
    gates = {name.split(".")[-1]: trace[name][sentence].float() for name in found}
    return gate_maps(gates, tokens, f"{isolated(trace.input)} · gates of {found[0].rsplit('.gates', 1)[0]}")


def gate_maps(gates: Mapping[str, Tensor], tokens: Sequence[str], title: str) -> Figure:
    """Each gate (T, W) as a heat map, a row for each unit, a column for each token; a line is the mean of all units."""
    from matplotlib.figure import Figure

    check_size(len(tokens))
    tokens = names(list(tokens))
    with chart_style([*tokens, title]):
        figure = Figure(figsize=(max(5.5, 1.4 + 0.42 * len(tokens)), 0.9 + 1.75 * len(gates)), layout="constrained")
        panels = figure.subplots(len(gates), 1, squeeze=False, sharex=True)[:, 0]
        for axes, (gate, x) in zip(panels, gates.items(), strict=True):
            x = x[:, x.mean(dim=0).argsort(descending=True)]
            image = axes.imshow(x.T.numpy(), cmap=MAP, vmin=0, vmax=1, aspect="auto", interpolation="nearest")
            mean = axes.twinx()
            mean.plot(x.mean(dim=1).tolist(), color=ORANGE, marker="o", markersize=3.5, linewidth=1.6)
            mean.set(ylim=(0, 1), yticks=(0, 1))
            axes.set_ylabel("units", fontsize=8.5)
            axes.set_yticks([])
            axes.set_title(f"{gate} gate")
            for each in (axes, mean):
                each.grid(visible=False)
                each.tick_params(length=0)
        panels[-1].set_xticks(
            range(len(tokens)), tokens, rotation=45, ha="right", rotation_mode="anchor", parse_math=False
        )
        figure.colorbar(image, ax=panels, label="0: closed, 1: open (line: mean)", shrink=0.6).outline.set_visible(
            False
        )
        figure.suptitle(wrapped(title, 90), fontsize=9.5, x=0.01, ha="left", parse_math=False)
    return figure
