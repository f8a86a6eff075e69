"""Views: what can be looked at in a trace, by name. Each is a figure, a picture for a terminal, and a table of numbers.

A view is added by a `View` in `VIEWS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from glassformer.errors import InputError
from glassformer.looking.patching import Effects, patching
from glassformer.looking.plots.beam import spelled, tree_of
from glassformer.looking.plots.choosing import MOST, head_of, kind_of, names
from glassformer.looking.plots.images import patch_weights
from glassformer.looking.plots.vectors import alike, gate_names, vectors_of
from glassformer.looking.points import find_all, layer_of
from glassformer.looking.terminal import beam_text, heads_text, lines_text, matrix_text
from glassformer.looking.trace import Trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = Sequence[Any]  # of a table; the first has the names of columns
NO_POSITIONS = "this model adds no positions to embeddings"


@dataclass(frozen=True)
class Choice:
    """What is to be shown of a trace."""

    layer: int | None = None
    head: int | None = None
    kind: str | None = None  # of attention
    against: Any = None  # another text, to compare with
    image: Any = None  # that the trace is of
    width: int = 80  # letters that a line of the terminal has


@dataclass(frozen=True)
class View:
    """One way to look at a trace."""

    name: str
    meaning: str  # in a few words
    draw: Callable[[Any, Choice], Figure]  # of a trace, or of what `make` gives
    text: Callable[[Any, Choice], str]  # in rich's markup
    rows: Callable[[Any, Choice], Iterator[Row]]
    points: tuple[str, ...] = ("weights",)  # what it needs: patterns of names, the first of which must be there
    merges: bool = True  # whether words can take the place of their pieces
    options: frozenset[str] = frozenset({"kind"})  # which choices have an effect
    make: Callable[[Any, Any, Choice], Any] | None = None  # of a run and what it reads, where a trace is not enough

    def fits(self, points: Sequence[str]) -> bool:
        """Whether a model with these points has what the view shows."""
        return bool(_matching(self.points[:1], points))

    def keep(self, points: Sequence[str]) -> list[str]:
        """The points that the view needs, of those that a model has."""
        return _matching(self.points, points)


def _matching(patterns: Sequence[str], points: Sequence[str]) -> list[str]:
    found: list[str] = []
    for pattern in patterns:
        try:
            found += find_all(pattern, points)
        except InputError:
            continue
    return found


def _head_text(trace: Trace, choice: Choice) -> str:
    """A map of one head, or where that is too wide, a line for each token."""
    found = head_of(trace, choice.layer, choice.head, choice.kind, 0)
    title = f"{found.title[:1].upper()}{found.title[1:]}: a row for each token that looks, a column for each it sees."
    needed = max(map(len, found.rows)) + 3 + sum(max(3, len(name)) + 1 for name in found.columns)
    draw = matrix_text if needed <= choice.width and len(found.rows) <= MOST else lines_text
    return f"{title}\n\n{draw(found.weights, found.rows, found.columns)}"


def _lines_text(trace: Trace, choice: Choice, most: int = 3) -> str:
    found = head_of(trace, choice.layer, choice.head, choice.kind, 0)
    title = f"{found.title[:1].upper()}{found.title[1:]}: each token, and what it looks at most."
    return f"{title}\n\n{lines_text(found.weights, found.rows, found.columns, most)}"


def _weights(trace: Trace, choice: Choice) -> Iterator[Row]:
    """All weights of one kind of attention, or those of the layer and the head that are chosen."""
    yield ("kind", "layer", "head", "token", "token_text", "key", "key_text", "weight")
    kind = kind_of(trace, choice.kind)
    if choice.layer is not None or choice.head is not None:
        head_of(trace, choice.layer, choice.head, kind, 0)  # which refuses what does not exist
    for name in trace.attentions(kind):
        layer, axes = layer_of(name) or 0, trace.axes(name)
        for head, weights in zip(axes["head"], trace[name][0].float().tolist(), strict=True):
            if choice.layer in (None, layer) and choice.head in (None, head):
                for row, text in enumerate(axes["token"]):
                    for column, key in enumerate(axes["key"]):
                        yield (kind, layer, head, row, text, column, key, f"{weights[row][column]:.6g}")


def _alignment(trace: Trace, choice: Choice) -> Iterator[Row]:
    yield ("token", "token_text", "key", "key_text", "weight")
    found = head_of(trace, choice.layer, choice.head, choice.kind, 0)
    for row, weights in enumerate(found.weights):
        place = int(weights.argmax())
        yield (row, found.rows[row], place, found.columns[place], f"{float(weights[place]):.6g}")


def _tree(trace: Trace, choice: Choice) -> Iterator[Row]:
    yield ("number", "parent", "step", "token", "token_text", "log_probability", "total", "score", "fate")
    tree = tree_of(trace, 0)
    for node, text in zip(tree.nodes, spelled(trace, tree, 0), strict=True):
        numbers = (f"{each:.6g}" for each in (node.log_probability, node.total, node.score))
        yield (node.number, node.parent, node.length, node.token, text, *numbers, node.fate)


def _vector_rows(ending: str) -> Callable[[Trace, Choice], Iterator[Row]]:
    def rows(trace: Trace, choice: Choice) -> Iterator[Row]:
        _, x, tokens = vectors_of(trace, ending, None, 0, f"there is no {ending} to show")
        yield ("token", "token_text", *range(x.shape[1]))
        for place, (text, values) in enumerate(zip(tokens, x.tolist(), strict=True)):
            yield (place, text, *(f"{value:.6g}" for value in values))

    return rows


def _vector_text(ending: str, what: str) -> Callable[[Trace, Choice], str]:
    def text(trace: Trace, choice: Choice) -> str:
        name, x, tokens = vectors_of(trace, ending, None, 0, what)
        return f"{name}: how alike each two are (the cosine of their angle).\n\n{matrix_text(alike(x), tokens, tokens)}"

    return text


def _gates(trace: Trace, choice: Choice) -> tuple[list[str], list[str], Tensor]:
    """The names of gates, the tokens, and the mean of all units of each gate at each token."""
    found = gate_names(trace, None, choice.layer or 0)
    return found, names(trace.axes(found[0])["token"]), torch.stack([trace[name][0].mean(dim=-1) for name in found])


def _gates_text(trace: Trace, choice: Choice) -> str:
    found, tokens, means = _gates(trace, choice)
    title = f"The gates of {found[0].rsplit('.gates', 1)[0]}: the fuller, the more open (the mean of all units)."
    return f"{title}\n\n{matrix_text(means, [name.split('.')[-1] for name in found], tokens)}"


def _gate_rows(trace: Trace, choice: Choice) -> Iterator[Row]:
    found, tokens, _ = _gates(trace, choice)
    yield ("gate", "token", "token_text", "unit", "value")
    for name in found:
        for place, values in enumerate(trace[name][0].tolist()):
            for unit, value in enumerate(values):
                yield (name, place, tokens[place], unit, f"{value:.6g}")


def _patches_text(trace: Trace, choice: Choice) -> str:
    weights, what = patch_weights(trace, choice.layer, choice.head, 0)
    rows, columns = ([str(number + 1) for number in range(size)] for size in weights.shape)
    return (
        f"{what[:1].upper()}{what[1:]}: how much the class token looks at each patch, the most at the fullest.\n\n"
        f"{matrix_text(weights / weights.max(), rows, columns)}"
    )


def _patch_rows(trace: Trace, choice: Choice) -> Iterator[Row]:
    weights, _ = patch_weights(trace, choice.layer, choice.head, 0)
    yield ("row", "column", "weight")
    for row, values in enumerate(weights.tolist()):
        for column, value in enumerate(values):
            yield (row + 1, column + 1, f"{value:.6g}")


def answer_metric(run: Any, clean: Any) -> tuple[Callable[[Tensor], Any], Sequence[int] | None]:
    """A metric for patching: the log-probability of what a run answers to the clean text; and what it wrote.

    What is written, a label, tags, or the likeliest token after the text.
    """
    forced = run.forced(clean)
    with torch.inference_mode():
        logits = run.model(*forced.inputs)[0].float().cpu()
    if forced.written is not None:
        right = torch.tensor([*forced.written, run.special.end])[: len(logits)]
    elif logits.dim() == 1:
        return (lambda found: found.log_softmax(-1)[int(logits.argmax())]), None
    elif run.attention_kind == "decoder.self":
        return (lambda found: found[-1].log_softmax(-1)[int(logits[-1].argmax())]), None
    else:
        right = logits.argmax(dim=-1)
    return (lambda found: found.log_softmax(-1).gather(-1, right[:, None]).sum()), forced.written


def _effects(run: Any, clean: Any, choice: Choice) -> Effects:
    if choice.against is None:
        raise InputError("patching compares two texts: name the other one with --against TEXT")
    metric, written = answer_metric(run, clean)
    return patching(run, clean, choice.against, metric, written=written)


def _effects_text(found: Effects, choice: Choice) -> str:
    title = (
        "What comes back of the answer to the clean text, if one place is patched: nothing, or all where it is full."
    )
    return f"{title}\n\n{matrix_text(found.effects, found.points, names(found.labels))}"


def _effect_rows(found: Effects, choice: Choice) -> Iterator[Row]:
    yield ("point", "position", "text", "effect")
    for point, values in zip(found.points, found.effects.tolist(), strict=True):
        for place, (text, value) in enumerate(zip(found.labels, values, strict=True)):
            yield (point, place, text, f"{value:.6g}")


HEAD = frozenset({"layer", "head", "kind"})
VIEWS: dict[str, View] = {
    view.name: view
    for view in (
        View(
            "attention",
            "a map of one head, the sharpest if none is named",
            lambda trace, choice: trace.plot.attention(choice.layer, choice.head, choice.kind),
            _head_text,
            _weights,
            options=HEAD,
        ),
        View(
            "heads",
            "small maps of all heads",
            lambda trace, choice: trace.plot.heads(choice.kind),
            lambda trace, choice: heads_text(trace, choice.kind, choice.width),
            _weights,
        ),
        View(
            "lines",
            "lines from each token to those that it looks at",
            lambda trace, choice: trace.plot.lines(choice.layer, choice.head, choice.kind),
            _lines_text,
            _weights,
            options=HEAD,
        ),
        View(
            "alignment",
            "each token, and the one that it looks at most",
            lambda trace, choice: trace.plot.alignment(choice.layer, choice.head, choice.kind),
            lambda trace, choice: _lines_text(trace, choice, most=1),
            _alignment,
            options=HEAD,
        ),
        View(
            "beam",
            "the tree of the beam search",
            lambda trace, choice: trace.plot.beam(),
            lambda trace, choice: beam_text(trace),
            _tree,
            points=("logits", "tokens"),
            merges=False,
            options=frozenset({"beam"}),
        ),
        View(
            "positions",
            "what is added for positions",
            lambda trace, choice: trace.plot.positions(),
            _vector_text("positions", NO_POSITIONS),
            _vector_rows("positions"),
            points=("positions",),
            merges=False,
            options=frozenset(),
        ),
        View(
            "embeddings",
            "tokens as points, before and after all layers",
            lambda trace, choice: trace.plot.embeddings(),
            _vector_text("embedding", "no embeddings were recorded"),
            _vector_rows("embedding"),
            points=("embedding", "encoder.output", "decoder.output", "*.after"),
            options=frozenset(),
        ),
        View(
            "gates",
            "the gates of a recurrent model over the text",
            lambda trace, choice: trace.plot.gates(layer=choice.layer or 0),
            _gates_text,
            _gate_rows,
            points=("gates.*",),
            merges=False,
            options=frozenset({"layer"}),
        ),
        View(
            "patches",
            "where in an image the model looks",
            lambda trace, choice: trace.plot.patches(choice.image, choice.layer, choice.head),
            _patches_text,
            _patch_rows,
            points=("patches", "weights"),
            merges=False,
            options=frozenset({"layer", "head"}),
        ),
        View(
            "patching",
            "which place carries the difference to the text of --against",
            lambda found, choice: found.plot.patching(),
            _effects_text,
            _effect_rows,
            points=("tokens",),
            merges=False,
            options=frozenset({"against"}),
            make=_effects,
        ),
    )
}


def view_of(name: str) -> View:
    """The view of some name."""
    if name not in VIEWS:
        near = get_close_matches(name, VIEWS, n=1)
        meant = f"did you mean {near[0]}?" if near else f"it is one of {', '.join(VIEWS)}"
        raise InputError(f'there is nothing called "{name}" to look at: {meant}')
    return VIEWS[name]


def fitting(points: Sequence[str], searches: bool) -> list[str]:
    """The names of the views that a model with these points has something for; `searches`: it writes by beam search."""
    return [name for name, view in VIEWS.items() if view.fits(points) and (name != "beam" or searches)]
