"""The plot of a beam search: a tree of what was kept, pruned and finished, with the scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from glassformer.decoding.tree import BeamTree, Fate, Node
from glassformer.errors import InputError
from glassformer.looking.plots.choosing import heading, name, wrapped
from glassformer.looking.style import BLUE, GREEN, GREY, INK, ORANGE, chart_style
from glassformer.looking.trace import Trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOUR = {Fate.KEPT: BLUE, Fate.PRUNED: GREY, Fate.FINISHED: GREEN}
MOST = 250  # nodes


@dataclass(frozen=True)
class Shown:
    """The nodes of a tree that are drawn, with their places from the top, and those of the best output."""

    nodes: list[Node]
    rows: dict[int, float]  # by number
    best: set[int]
    hidden: int  # nodes that are not drawn


def tree_of(trace: Trace, sentence: int) -> BeamTree:
    """The tree of the search for a sentence; a sentence, if there was no search."""
    trees = trace.beams
    if not trees:
        raise InputError("there was no beam search: look at a run that writes, with a beam of 2 or more")
    if not 0 <= sentence < len(trees):
        raise InputError(f"there is no sentence {sentence}: the trace has {len(trees)}")
    return trees[sentence]


def shown(tree: BeamTree, pruned: int) -> Shown:
    """What was kept or finished until the best output ended, and the best of what was pruned after each step."""
    nodes, left, best = [], dict[int, int](), _best(tree)
    last = max((tree.nodes[number].length for number in best), default=0)
    for node in (node for node in tree.nodes if node.length <= last):
        if node.fate is Fate.PRUNED:
            left[node.length] = left.get(node.length, 0) + 1
        if node.fate is not Fate.PRUNED or left[node.length] <= pruned:
            nodes.append(node)
    if len(nodes) > MOST:
        raise InputError(f"the tree has {len(nodes):,} nodes, and a plot has room for {MOST}: take a shorter text")
    children: dict[int, list[Node]] = {}
    for node in nodes:
        children.setdefault(node.parent, []).append(node)
    rows: dict[int, float] = {}
    _place(-1, children, rows, [0])
    return Shown(nodes, rows, best, len(tree.nodes) - len(nodes))


def _place(number: int, children: dict[int, list[Node]], rows: dict[int, float], free: list[int]) -> None:
    """Give leaves the next free row, and each other node the middle of its children: depth first, without recursion."""
    order, stack = [], [number]
    while stack:
        order.append(stack.pop())
        stack += [child.number for child in reversed(children.get(order[-1], []))]
    for each in order:
        if not children.get(each):
            rows[each] = free[0]
            free[0] += 1
    for each in reversed(order):
        if below := children.get(each):
            rows[each] = (rows[below[0].number] + rows[below[-1].number]) / 2


def _best(tree: BeamTree) -> set[int]:
    """The nodes of the finished output with the best score, or of the best that was kept in the end."""
    ends = [node for node in tree.nodes if node.fate is Fate.FINISHED]
    last = max((node.length for node in tree.nodes), default=0)
    ends = ends or [node for node in tree.nodes if node.length == last and node.fate is Fate.KEPT]
    found: set[int] = set()
    node = max(ends, key=lambda node: node.score, default=None)
    while node is not None:
        found.add(node.number)
        node = tree.nodes[node.parent] if node.parent >= 0 else None
    return found


def spelled(trace: Trace, tree: BeamTree, sentence: int) -> list[str]:
    """The token of each node, as a run spells it; without one, its number."""
    texts = trace.about.tokens.get("beams", [])
    if sentence < len(texts) and len(texts[sentence]) == len(tree.nodes):
        return [name(text) for text in texts[sentence]]
    return [str(node.token) for node in tree.nodes]


def beam(trace: Trace, sentence: int, pruned: int) -> Figure:
    """The tree from left to right, a column for each step; each node says its token and the score of its path."""
    from matplotlib.figure import Figure

    tree = tree_of(trace, sentence)
    found, texts = shown(tree, pruned), spelled(trace, tree, sentence)
    steps, tall = max(node.length for node in found.nodes), max(found.rows.values()) + 1
    with chart_style([*texts, trace.input, trace.output]):
        size = (1.2 + 1.12 * steps, 1.4 + 0.33 * tall)
        figure = Figure(figsize=(max(size[0], 6), max(size[1], 2.5)), layout="constrained")
        axes = figure.subplots()
        for node in found.nodes:
            _edge(axes, node, found)
        axes.plot(0, found.rows[-1], "o", color=INK, markersize=5)
        for node in found.nodes:
            _node(axes, node, texts[node.number], found)
        axes.set(xlim=(-0.2, steps + 0.85), ylim=(tall - 0.3, -0.8), yticks=[])
        axes.set_xticks(range(1, steps + 1))
        axes.grid(visible=False)
        axes.set_xlabel("step; under each token the score of its path", color=GREY)
        for side in axes.spines.values():
            side.set_visible(False)
        axes.tick_params(length=0, colors=GREY)
        _legend(axes, found.hidden)
        figure.suptitle(wrapped(heading(trace), int(13 * size[0])), fontsize=10, x=0.01, ha="left", parse_math=False)
    return figure


def _edge(axes: Any, node: Node, found: Shown) -> None:
    """The line from a node's parent to it."""
    chosen = node.number in found.best
    begin, end = (node.length - 1, found.rows[node.parent]), (node.length, found.rows[node.number])
    middle = begin[0] + (0.35 if node.parent < 0 else 0.5)
    axes.plot(
        [begin[0], middle, middle, end[0]],
        [begin[1], begin[1], end[1], end[1]],
        color=ORANGE if chosen else COLOUR[node.fate],
        linewidth=2.4 if chosen else 1.0,
        linestyle=":" if node.fate is Fate.PRUNED else "-",
        marker="",
        zorder=3 if chosen else 1,
        solid_joinstyle="round",
    )


def _node(axes: Any, node: Node, text: str, found: Shown) -> None:
    """A node: its token, and under it the score."""
    chosen, row = node.number in found.best, found.rows[node.number]
    colour = ORANGE if chosen else COLOUR[node.fate]
    quiet = node.fate is Fate.PRUNED
    axes.text(
        node.length,
        row,
        text,
        ha="center",
        va="center",
        fontsize=8 if quiet else 9,
        weight="bold" if chosen else "normal",
        color=GREY if quiet else INK,
        parse_math=False,
        zorder=4,
        bbox={
            "boxstyle": "round,pad=0.22",
            "facecolor": "white",
            "edgecolor": colour,
            "linewidth": 1.6 if chosen else 0.8,
        },
    )
    axes.text(
        node.length, row + 0.46, f"{node.score:.2f}", ha="center", va="center", fontsize=6.5, color=GREY, zorder=5
    )


def _legend(axes: Any, hidden: int) -> None:
    """What the lines mean."""
    from matplotlib.lines import Line2D

    more = f" ({hidden} more are not drawn)" if hidden else ""
    lines: Sequence[tuple[str, dict[str, Any]]] = (
        ("the best", {"color": ORANGE, "linewidth": 2.4}),
        ("kept", {"color": BLUE}),
        ("finished", {"color": GREEN}),
        (f"pruned{more}", {"color": GREY, "linestyle": ":"}),
    )
    handles = [Line2D([], [], label=label, marker="", **style) for label, style in lines]
    axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(0, 1.0), ncols=4, borderaxespad=0, fontsize=8)
