"""Read and write: a text or an image, what the run answers, and what was read for each word, by every head.

read      the answer, tokens, candidates and weights; of long texts a window, and small maps of heads
weights   the weights of one head, or of a mean, where there were too many to send all
effects   which heads matter: what the answer loses without each
"""

from __future__ import annotations

from typing import Any, Literal

from glassformer.errors import InputError
from glassformer.looking import points
from glassformer.looking.ablation import head_effects
from glassformer.looking.answer import Answer
from glassformer.looking.packing import VERSION, First, answer_of, weights_of, window_of
from glassformer.looking.points import layer_of
from glassformer.studio.faces import face_of
from glassformer.studio.items import item_of
from glassformer.studio.views.passes import can_read, heads_of, tells_scores
from glassformer.studio.views.traces import Output, Reading, changed, looked
from glassformer.studio.views.view import IMAGE, Given, Head, Kind, Layer, Options, Place, View


class Read(Reading):
    """And of a long text, at which token to begin."""

    start: Place = 0


class Weights(Read):
    """And which weights: those of a head, of the mean of a layer, or of the mean of all."""

    reading: Literal["words", "pieces"]
    kind: Kind
    layer: Layer | None = None
    head: Head | None = None


class Effects(Options):
    """The text whose answer is to suffer."""

    text: Given


def read(run: Any, options: Read) -> Answer:
    """All attention over a text, by pieces and by words, and the candidates of each step."""
    trace, item = looked(run, options), item_of(run, options.text)
    with changed(run, options):
        face = face_of(run, item, trace)
    first = First(row=run.answers_at)
    if not trace.kinds:
        said = {
            "version": VERSION,
            "input": trace.input,
            "output": trace.output,
            "readings": {"pieces": []},
            "candidates": [],
            "words": {stack: rows[0] for stack, rows in trace.about.words.items() if rows},
        }
        found = Answer(said)
    else:  # over an image, all heads are shown at once
        found = window_of(trace, options.start, first) if face.header["picture"] is None else answer_of(trace, first)
    cut = run.recipe.data.max_tokens if run.cuts(item) else None
    begins = len(run.read(item)) - 1 if run.extends else 0  # the place whose candidates are those of the first step
    return Answer({**found.header, "cut": cut, "begins": begins, **face.header}, {**found.arrays, **face.arrays})


def weights(run: Any, options: Weights) -> Answer:
    """The weights of one head, or of a mean."""
    trace = looked(run, options)
    return weights_of(trace, options.reading, options.kind, options.layer, options.head, options.start)


def effects(run: Any, options: Effects) -> Answer:
    """What the log-probability of the answer loses without each head."""
    heads = heads_of(run)
    if not can_read(heads, run, Output(text=options.text)):
        raise InputError(f"to switch off each of {heads:,} heads takes too long: take a shorter text")
    found = head_effects(run, item_of(run, options.text))
    rows = [
        {"kind": kind, "layer": layer_of(point) or 0, "head": head, "effect": round(value, 4)}
        for kind, scores in found.items()
        for point, values in zip(scores.points, scores.values.tolist(), strict=True)
        for head, value in zip(scores.heads, values, strict=True)
    ]
    return Answer({"heads": rows})


def fits(run: Any) -> bool:
    """Whether the model has attention."""
    return any(name.endswith(".weights") for name in points(run))


VIEWS = (
    View("read", Read, read, body=IMAGE),
    View("weights", Weights, weights, fits, body=IMAGE),
    View("effects", Effects, effects, lambda run: fits(run) and tells_scores(run), body=IMAGE),
)
