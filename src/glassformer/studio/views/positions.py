"""Positions and embeddings: how a model knows the order, and where its tokens stand, layer by layer.

positions       the model's own scheme: what is added, turned or subtracted, and how alike positions are by distance
embeddings      the tokens of one or two texts in the plane of each layer, static and contextual
embeddings.near the nearest tokens: in the vocabulary by static vectors, and in the texts by those of each layer

L layers, N tokens, T positions, D width
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from glassformer.errors import InputError
from glassformer.looking.analyses import (
    PositionScheme,
    aligned,
    neighbours,
    pca,
    position_schemes,
    static_similarity,
    table_neighbours,
)
from glassformer.looking.answer import Answer, Array
from glassformer.looking.plots.choosing import name
from glassformer.looking.trace import Trace
from glassformer.looking.windows import window
from glassformer.studio.views.passes import forced_of, streams, trace_of
from glassformer.studio.views.traces import Output
from glassformer.studio.views.view import IMAGE, Options, View

MOST = 256  # tokens on a map
TOP = 6  # neighbours
Stack = Literal["encoder", "decoder"]


class Positions(Options):
    """Which stack, and how many positions."""

    stack: Stack
    length: Annotated[int, Field(ge=4, le=256)] = 64


class Embeddings(Output):
    """One text or two, and the stack that reads them."""

    other: Annotated[str, Field(max_length=IMAGE)] = ""
    stack: Stack


class Near(Embeddings):
    """And the token whose neighbours are wanted: of which text, and where in it."""

    of: Literal[0, 1] = 0
    token: Annotated[int, Field(ge=0, le=100_000)] = 0


def schemes(run: Any, options: Positions) -> Answer:
    """The schemes of one stack."""
    _check(run, options.stack)
    arrays: dict[str, Array] = {}
    said = []
    for number, scheme in enumerate(position_schemes(run, options.stack, options.length)):
        arrays |= {f"{number} {key}": values for key, values in _numbers(scheme).items()}
        said.append({"kind": scheme.kind, "distances": scheme.distances})
    return Answer({"stack": options.stack, "schemes": said}, arrays)


def _numbers(scheme: PositionScheme) -> dict[str, Array]:
    """The arrays of a scheme, those that it has."""
    found = {"vectors": scheme.vectors, "similarity": scheme.similarity, "by_distance": scheme.by_distance}
    return {key: each.numpy().astype(np.float32) for key, each in found.items() if each is not None}


def _check(run: Any, stack: str) -> None:
    if not hasattr(run.model, stack):
        raise InputError(f"this model has no {stack}")


def maps(run: Any, options: Embeddings) -> Answer:
    """The tokens in the plane of each layer, each layer turned towards the one before."""
    traces = _traces(run, options)
    found = aligned(pca(traces, options.stack))
    static = static_similarity(traces[0], options.stack)
    rows = dict(zip(static.rows, static.values, strict=True))
    own = found.texts.count(0)
    same = np.stack([rows[point].numpy() if point in rows else np.full(own, np.nan) for point in found.points])
    return Answer(
        {
            "stack": options.stack,
            "points": found.points,
            "tokens": [name(each) for each in found.tokens],
            "texts": found.texts,
            "total": sum(len(forced_of(run, each).tokens[options.stack][0]) for each in _asked(options)),
            "explained": [round(float(each), 4) for each in found.explained.sum(dim=1)],
            "words": traces[0].about.words.get(options.stack, [[]])[0],
        },
        {"places": found.values.numpy(), "static": np.nan_to_num(same).astype(np.float32)},
    )


def _asked(options: Embeddings) -> list[Output]:
    """The texts whose tokens are on a map."""
    return [options, *([Output(text=options.other, length=options.length)] if options.other.strip() else [])]


def _traces(run: Any, options: Embeddings) -> list[Trace]:
    """The traces of the texts, with the streams of one stack; of many tokens, the first ones."""
    _check(run, options.stack)
    asked = _asked(options)
    keep = tuple(each for each in streams(run) if each.startswith(f"{options.stack}."))
    return [window(trace_of(run, each, keep), 0, MOST // len(asked)) for each in asked]


def near(run: Any, options: Near) -> Answer:
    """The nearest tokens to one."""
    traces = _traces(run, options)
    if options.of >= len(traces):
        raise InputError("there is one text only: name a second one")
    count = sum(trace[f"{options.stack}.embedding"].shape[1] for trace in traces)
    found = neighbours(traces, options.of, options.token, options.stack, min(TOP, count - 1))
    static, texts = list[tuple[int, float]](), list[str]()
    if (tokens := f"{options.stack}.tokens") in traces[options.of].names:  # patches and values are in no table
        static = table_neighbours(run, int(traces[options.of][tokens][0, options.token]), options.stack, TOP)
        tokenizer = getattr(run, "target", run.tokenizer) if options.stack == "decoder" else run.tokenizer
        texts = tokenizer.tokens([each for each, _ in static])
    return Answer(
        {
            "token": name(found.token),
            "points": found.points,
            "near": [
                [
                    {"text": name(text), "of": of, "place": place, "cosine": round(cosine, 4)}
                    for text, (of, place), cosine in zip(*row, strict=True)
                ]
                for row in zip(found.tokens, found.places, found.cosine.tolist(), strict=True)
            ],
            "vocabulary": [
                {"text": name(text), "cosine": round(cosine, 4)}
                for text, (_, cosine) in zip(texts, static, strict=True)
            ],
        }
    )


VIEWS = (
    View("positions", Positions, schemes),
    View("embeddings", Embeddings, maps, body=IMAGE),
    View("embeddings.near", Near, near, body=IMAGE),
)
