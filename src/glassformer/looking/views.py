"""Views: what can be looked at in a trace, by name. Each is a figure, a picture for a terminal, and a table of numbers.

A view is added by a `View` in `VIEWS`.

W words, F frames, R rows, C columns of patches
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from typing import Any

import torch
from torch import Tensor

from glassformer.errors import InputError
from glassformer.looking.analysis_views import ANALYSES
from glassformer.looking.patching import Effects, answer_metric, patching
from glassformer.looking.plots.beam import spelled, tree_of
from glassformer.looking.plots.choosing import head_of, kind_of, names
from glassformer.looking.plots.images import patch_weights, tells, word_weights
from glassformer.looking.plots.vectors import alike, gate_names, vectors_of
from glassformer.looking.points import layer_of
from glassformer.looking.terminal import beam_text, fits, heads_text, lines_text, maps_text, matrix_text
from glassformer.looking.trace import Trace
from glassformer.looking.view import Choice, Row, View

NO_POSITIONS = "this model adds no positions to embeddings"


def _head_text(trace: Trace, choice: Choice) -> str:
    """A map of one head, or where that is too wide, a line for each token."""
    found = head_of(trace, choice.layer, choice.head, choice.kind, 0)
    if not fits(found.rows, found.columns, choice.width):
        return _lines_text(trace, choice)
    title = f"{found.title[:1].upper()}{found.title[1:]}: a row for each token that looks, a column for each it sees."
    return f"{title}\n\n{matrix_text(found.weights, found.rows, found.columns, choice.width)}"


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
        title = f"{name}: how alike each two are (the cosine of their angle)."
        return f"{title}\n\n{matrix_text(alike(x), tokens, tokens, choice.width)}"

    return text


def _gates(trace: Trace, choice: Choice) -> tuple[list[str], list[str], Tensor]:
    """The names of gates, the tokens, and the mean of all units of each gate at each token."""
    found = gate_names(trace, None, choice.layer or 0)
    return found, names(trace.axes(found[0])["token"]), torch.stack([trace[name][0].mean(dim=-1) for name in found])


def _gates_text(trace: Trace, choice: Choice) -> str:
    found, tokens, means = _gates(trace, choice)
    title = f"The gates of {found[0].rsplit('.gates', 1)[0]}: the fuller, the more open (the mean of all units)."
    gates = [name.split(".")[-1] for name in found]
    if not fits(gates, tokens, choice.width):  # a long text runs down
        return f"{title}\n\n{matrix_text(means.T, tokens, gates, choice.width)}"
    return f"{title}\n\n{matrix_text(means, gates, tokens, choice.width)}"


def _gate_rows(trace: Trace, choice: Choice) -> Iterator[Row]:
    found, tokens, _ = _gates(trace, choice)
    yield ("gate", "token", "token_text", "unit", "value")
    for name in found:
        for place, values in enumerate(trace[name][0].tolist()):
            for unit, value in enumerate(values):
                yield (name, place, tokens[place], unit, f"{value:.6g}")


def _words_text(trace: Trace, choice: Choice) -> str:
    """A small map for each word; the frames of a film stand side by side."""
    words, weights, what = word_weights(trace, choice.layer, choice.head, 0)  # (W, F, R, C)
    maps = [torch.from_numpy(each / max(each.max(), 1e-12)) for each in weights]
    gap = torch.zeros(weights.shape[2], 1)
    strips = [torch.cat([part for frame in each for part in (frame, gap)][:-1], dim=1) for each in maps]
    title = f"{what[:1].upper()}{what[1:]}: where in the image each word looks, the most at the fullest."
    return f"{title}\n\n{maps_text(list(zip(words, strips, strict=True)), choice.width)}"


def _patches_text(trace: Trace, choice: Choice) -> str:
    if tells(trace):
        return _words_text(trace, choice)
    weights, what = patch_weights(trace, choice.layer, choice.head, 0)
    rows, columns = ([str(number + 1) for number in range(size)] for size in weights.shape)
    return (
        f"{what[:1].upper()}{what[1:]}: how much the class token looks at each patch, the most at the fullest.\n\n"
        f"{matrix_text(weights, rows, columns, choice.width, float(weights.max()))}"
    )


def _patch_rows(trace: Trace, choice: Choice) -> Iterator[Row]:
    if tells(trace):
        yield from _word_rows(trace, choice)
        return
    weights, _ = patch_weights(trace, choice.layer, choice.head, 0)
    yield ("row", "column", "weight")
    for row, values in enumerate(weights.tolist()):
        for column, value in enumerate(values):
            yield (row + 1, column + 1, f"{value:.6g}")


def _word_rows(trace: Trace, choice: Choice) -> Iterator[Row]:
    yield ("token", "token_text", "frame", "row", "column", "weight")
    words, weights, _ = word_weights(trace, choice.layer, choice.head, 0)
    for place, (word, frames) in enumerate(zip(words, weights.tolist(), strict=True)):
        for frame, rows in enumerate(frames):
            for row, values in enumerate(rows):
                for column, value in enumerate(values):
                    yield (place, word, frame + 1, row + 1, column + 1, f"{value:.6g}")


def _effects(run: Any, clean: Any, choice: Choice) -> Effects:
    if choice.against is None:
        raise InputError("patching compares two texts: name the other one with --against TEXT")
    metric, written = answer_metric(run, clean)
    return patching(run, clean, choice.against, metric, written=written)


def _effects_text(found: Effects, choice: Choice) -> str:
    title = (
        "What comes back of the answer to the clean text, if one place is patched: nothing, or all where it is full."
    )
    return f"{title}\n\n{matrix_text(found.effects, found.points, names(found.labels), choice.width)}"


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
            points=("embedding",),
            more=("encoder.output", "decoder.output", "*.after"),
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
            "where in an image the model looks, for each word if it writes",
            lambda trace, choice: trace.plot.patches(choice.image, choice.layer, choice.head),
            _patches_text,
            _patch_rows,
            points=("patches", "weights"),
            options=frozenset({"layer", "head"}),
        ),
        View(
            "patching",
            "which place carries the difference to the text of --against",
            lambda found, choice: found.figure(),
            _effects_text,
            _effect_rows,
            points=("tokens",),
            merges=False,
            options=frozenset({"against"}),
            make=_effects,
        ),
        *ANALYSES,
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
