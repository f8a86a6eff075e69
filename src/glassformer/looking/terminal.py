"""Pictures for a terminal: coloured text in rich's markup, which can still be read without colours.

T tokens that look, S tokens that are looked at
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from torch import Tensor

from glassformer.decoding.tree import Fate, Node
from glassformer.errors import InputError
from glassformer.looking.figures import SHADES, attention_text
from glassformer.looking.plots.attention import growing
from glassformer.looking.plots.beam import shown, spelled, tree_of
from glassformer.looking.plots.choosing import MOST, check_size, head_of, kind_of
from glassformer.looking.points import layer_of
from glassformer.looking.trace import Trace

MOST_LINES = 300
LOOKED_AT = 3  # tokens in a line of text
FAINT = 0.05  # weights below are not told
SHADED = 0.4  # where no weight comes to that, as among many tokens, maps would be empty or all but
MARKS = {Fate.KEPT: "", Fate.PRUNED: "pruned", Fate.FINISHED: "finished"}
COLOURS = {Fate.KEPT: "blue", Fate.PRUNED: "grey58", Fate.FINISHED: "green"}


def lines_text(
    weights: Tensor, rows: Sequence[str], columns: Sequence[str], most: int = LOOKED_AT, full: float = 1.0
) -> str:
    """A line for each token that looks: the tokens that it looks at most, and their weights, from 0 to `full`."""
    if len(rows) > MOST_LINES:
        raise InputError(
            f"there are {len(rows):,} tokens, and {MOST_LINES} lines are shown at most: take a shorter text"
        )
    margin = max(map(cell_len, rows))
    lines = []
    for row, values in zip(rows, weights, strict=True):
        order = values.argsort(descending=True).tolist()[:most]
        told = [(columns[place], float(values[place])) for place in order]
        told = told[:1] + [(text, weight) for text, weight in told[1:] if weight >= FAINT * full]
        parts = [
            f"[grey{round(50 + 43 * min(max(weight / full, 0), 1))}]{plain(text)} {weight:.2f}[/]"
            for text, weight in told
        ]
        lines.append(f"{' ' * (margin - cell_len(row))}{plain(row)}  ←  {'   '.join(parts)}")
    return "\n".join(lines)


def heads_text(trace: Trace, kind: str | None, width: int, sentence: int = 0) -> str:
    """All heads, small: a letter for each weight, side by side as far as they fit.

    Where no weight is large, as among many tokens, the largest has the fullest shade, and its number is told.
    """
    kind = kind_of(trace, kind)
    layers = [layer_of(name) or 0 for name in trace.attentions(kind)]
    maps = {
        layer: [(f"head {each}", head_of(trace, layer, each, kind, sentence).weights) for each in numbers]
        for layer, numbers in zip(layers, _heads(trace, kind, sentence), strict=True)
    }
    most = max(float(weights.max()) for heads in maps.values() for _, weights in heads)
    full = most if 0 < most < SHADED else 1.0
    parts = [] if full == 1.0 else [f"[grey58]No weight is large: the fullest shade is {full:.2f}.[/]"]
    for layer, heads in maps.items():
        small = [(title, weights / full) for title, weights in heads]
        parts += [f"[bold]layer {layer}[/]", maps_text(small, width)]
    return "\n".join(parts)


def _heads(trace: Trace, kind: str, sentence: int) -> list[list[int]]:
    """The numbers of the heads of each layer."""
    return [trace.axes(name, sentence)["head"] for name in trace.attentions(kind)]


def maps_text(maps: Sequence[tuple[str, Tensor]], width: int) -> str:
    """Small maps with their titles, all of one size, side by side as far as they fit into a line."""
    widest = max(cell_len(title) for title, _ in maps)
    small = [_small(weights, f"{title}{' ' * (widest - cell_len(title))}") for title, weights in maps]
    across, parts = max(1, (width - 2) // (cell_len(_bare(small[0][0])) + 3)), list[str]()
    for first in range(0, len(small), across):
        rows = zip(*small[first : first + across], strict=True)
        parts += [*("  " + "   ".join(cells) for cells in rows), ""]
    return "\n".join(parts)


def born_text(looks: Sequence[tuple[int, Trace]], kind: str | None, sentence: int = 0) -> str:
    """One head at some steps of a training, small, and what the run wrote then."""
    last, found = growing(looks, kind, sentence)
    parts = [f"{last.title[:1].upper()}{last.title[1:]}, as it came to be:", ""]
    for step, head, trace in found:
        margin = max(map(cell_len, head.rows))
        rows = _small(head.weights, "")[1:]
        said = f"  {plain(trace.output)}" if trace.output else ""
        parts.append(f"[bold]step {step:,}[/]{said}")
        names = [f"{' ' * (margin - cell_len(name))}{plain(name)}" for name in head.rows]
        parts += [*(f"  {name}  {row}" for name, row in zip(names, rows, strict=True)), ""]
    return "\n".join(parts)


def _small(weights: Tensor, title: str) -> list[str]:
    """A map with a letter for each weight, and its title; all lines are equally wide."""
    check_size(*weights.shape)
    width = max(weights.shape[1], cell_len(title))
    rows = [
        "".join(f"[grey{round(30 + 63 * each)}]{SHADES[round(each * (len(SHADES) - 1))]}[/]" for each in row)
        + " " * (width - len(row))
        for row in weights.clamp(0, 1).tolist()
    ]
    return [plain(title) + " " * (width - cell_len(title)), *rows]


def beam_text(trace: Trace, sentence: int = 0, pruned: int = 1) -> str:
    """The tree of a beam search: a line until the next fork, with the score of the path and what became of it."""
    tree = tree_of(trace, sentence)
    found, texts = shown(tree, pruned), spelled(trace, tree, sentence)
    below: dict[int, list[Node]] = {}
    for node in found.nodes:
        below.setdefault(node.parent, []).append(node)
    lines = [f"{len(tree.nodes):,} candidates; bold: the best, with the score of each path."]
    stack = [(node, "", "") for node in reversed(below.get(-1, []))]
    while stack:
        node, before, branch = stack.pop()
        chain = [node]
        while len(some := below.get(chain[-1].number, [])) == 1:
            chain.append(some[0])
        lines.append(f"{before}{branch}{_chain(chain, texts, found.best)}")
        deeper = before + {"": "", "├ ": "│ ", "└ ": "  "}[branch]
        stack += [(each, deeper, "└ " if each is some[-1] else "├ ") for each in reversed(some)]
    more = f"\n[grey58]{found.hidden:,} other candidates are not shown[/]" if found.hidden else ""
    return "\n".join(lines) + more


def _chain(chain: Sequence[Node], texts: Sequence[str], best: set[int]) -> str:
    """Nodes that follow each other without a fork: their tokens, the score of the last, and what became of it."""
    tokens = " ".join(
        f"[{'bold' if node.number in best else COLOURS[node.fate]}]{plain(texts[node.number])}[/]" for node in chain
    )
    last = chain[-1]
    return f"{tokens} [grey58]{last.score:.2f}[/] [{COLOURS[last.fate]}]{MARKS[last.fate]}[/]".rstrip()


def fits(rows: Sequence[str], columns: Sequence[str], width: int) -> bool:
    """Whether a map with these names can be read in lines of some width."""
    needed = max(map(cell_len, rows)) + 1 + sum(max(3, cell_len(name)) + 1 for name in columns)
    return needed <= width and max(len(rows), len(columns)) <= MOST


def matrix_text(values: Tensor, rows: Sequence[str], columns: Sequence[str], width: int, full: float = 1.0) -> str:
    """Numbers (T, S) as shades from 0 to `full`; where a line has no room for that, the largest numbers of each row."""
    if fits(rows, columns, width):
        return attention_text((values / full).clamp(0, 1), rows, columns)
    note = f"[grey58]The map is too large for this terminal: each row names its {LOOKED_AT} largest.[/]"
    return f"{lines_text(values, rows, columns, full=full)}\n\n{note}"


def cells_text(cells: Sequence[Sequence[tuple[str, float]]], rows: Sequence[str], columns: Sequence[str]) -> str:
    """A table of texts, each the brighter the nearer its number is to 1."""
    check_size(len(rows))
    widths = [max(cell_len(columns[at]), *(cell_len(row[at][0]) for row in cells)) for at in range(len(columns))]
    margin = max(map(cell_len, rows))
    heads = [text + " " * (width - cell_len(text)) for text, width in zip(columns, widths, strict=True)]
    lines = [f"{'':{margin}}   {'  '.join(heads)}".rstrip()]
    for row, some in zip(rows, cells, strict=True):
        parts = [
            f"[grey{round(35 + 58 * weight)}]{plain(text)}[/]{' ' * (width - cell_len(text))}"
            for (text, weight), width in zip(some, widths, strict=True)
        ]
        lines.append(f"{' ' * (margin - cell_len(row))}{plain(row)}   {'  '.join(parts)}")
    return "\n".join(lines)


def bars_text(values: Sequence[float], labels: Sequence[str], width: int) -> str:
    """Lying bars with their numbers: what is below 0 to the left of a line, what is above to its right."""
    check_size(len(labels))
    margin, most = max(map(cell_len, labels)), max(map(abs, values), default=0.0) or 1.0
    below = any(value < -0.005 * most for value in values)
    room = max(8, (width - margin - 12) // (2 if below else 1))
    lines = []
    for value, label in zip(values, labels, strict=True):
        size = round(room * abs(value) / most)
        left = f"{' ' * (room - size)}[red]{'▒' * size}[/]" if value < 0 and below else " " * (room if below else 0)
        right = f"[blue]{'█' * size}[/]" if value >= 0 else ""
        lines.append(f"{' ' * (margin - cell_len(label))}{plain(label)} {left}│{right} [grey58]{value:+.2f}[/]")
    return "\n".join(lines)


def plain(text: str) -> str:
    """A text that rich does not take for markup."""
    return text.replace("[", "\\[")


def _bare(line: str) -> str:
    """A line without markup."""
    from rich.text import Text

    return Text.from_markup(line).plain
