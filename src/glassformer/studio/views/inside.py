"""Inside: the whole model from left to right, any stage of it unfolded, and how each number was made.

inside        all stages with strips of their values, and what the model says in the end
inside.part   what is inside one part: of one head, and of one token where vectors are wide
inside.cell   how one number was made

T tokens, D width, N bins, V vocabulary
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from glassformer.looking.answer import Answer, Array
from glassformer.looking.plots.choosing import name
from glassformer.looking.points import tells_numbers
from glassformer.looking.stages import Lane, stages, strips
from glassformer.looking.sums import PROBABILITIES, Sum, sum_of
from glassformer.looking.trace import WRITTEN, Trace
from glassformer.looking.unfolding import Table, Unfolded, unfold
from glassformer.studio.views.passes import follows, forced_of, layer_trace, streams, trace_of
from glassformer.studio.views.traces import Output
from glassformer.studio.views.view import IMAGE, Head, View

BINS = 40  # numbers that stand for a vector in the overview
MOST = 512  # tokens of a lane that are shown
WINDOW = 96  # tokens on a side of an unfolded table
TERMS = 10  # of a sum that are written out, the largest
CANDIDATES = 3
NUMBERS = 6  # of an answer that is numbers
Token = Annotated[int, Field(ge=0, le=100_000)]
Place = Annotated[int, Field(ge=0, le=10_000_000)]
Name = Annotated[str, Field(max_length=80, pattern=r"^[a-z0-9_.]+$")]


class Unfold(Output):
    """A part of the model, the token whose vectors are shown, and the head."""

    part: Name
    token: Token = 0
    head: Head = 0


class Cell(Output):
    """One number: at a point, of a token and a head, at a feature, a key or a word of the vocabulary."""

    point: Name
    token: Token
    at: Place
    head: Head | None = None


def overview(run: Any, options: Output) -> Answer:
    """All stages of the model with strips of their values, and what it says in the end."""
    trace = trace_of(run, options, streams(run))
    arrays: dict[str, Array] = {}
    lanes = [_lane(trace, lane, arrays) for lane in stages(run)]
    return Answer(
        {
            "input": trace.input,
            "output": trace.output,
            "lanes": lanes,
            "answers": _numbers(trace) if tells_numbers(run) else _answers(run, trace, options),
            "parameters": sum(each.numel() for each in run.model.parameters()),
            "most": MOST,
        },
        arrays,
    )


def _lane(trace: Trace, lane: Lane, arrays: dict[str, Array]) -> dict[str, Any]:
    """One lane; the strips of its stages go into `arrays` under the names of their points."""
    first = lane.stages[0].point
    tokens = [name(each) for each in trace.axes(first)["token"]]
    ids = trace[f"{lane.stack}.tokens"][0].tolist() if f"{lane.stack}.tokens" in trace.names else []
    shown = []
    for stage in lane.stages:
        x = trace[stage.point][0].float()
        said = {**asdict(stage), "shape": list(x.shape), "norms": [], "scale": 0.0}
        if stage.point != "logits":
            said["norms"] = [round(each, 3) for each in x[:MOST].norm(dim=-1).tolist()]
            values = strips(x[:MOST], BINS)
            said["scale"] = round(_scale(values), 4)
            arrays[stage.point] = _bytes(values, _scale(values))
        shown.append(said)
    return {
        "stack": lane.stack,
        "title": lane.title,
        "tokens": tokens[:MOST],
        "ids": ids[:MOST],
        "total": len(tokens),
        "words": trace.about.words.get(lane.stack, [[]])[0],
        "written": trace.about.words.get(WRITTEN, [[]])[0] if lane.stack == "decoder" else [],
        "stages": shown,
    }


def _scale(x: Tensor) -> float:
    """The size that has the strongest colour: of a hundred numbers, 96 are below it."""
    flat = x.abs().flatten()
    return float(flat.kthvalue(max(1, round(0.96 * len(flat)))).values) or 1.0


def _bytes(x: Tensor, scale: float) -> Array:
    """Numbers from -scale to scale as 1 to 255, 0 as 128; beyond, they are cut."""
    whole = torch.round(128 + 127 * (x / scale).clamp(-1, 1))
    return whole.to(torch.uint8).numpy()


def _answers(run: Any, trace: Trace, asked: Output) -> list[list[dict[str, Any]]]:
    """The likeliest words or labels after each token of the last lane; of a whole text, one list."""
    if "logits" not in trace.names:
        return []
    *_, axis = trace.kept.axes_of("logits")
    names, logits = trace.axes("logits")[axis], trace["logits"][0].float()
    rows = (logits if logits.dim() == 2 else logits[None])[:MOST]  # (T, V)
    after = follows(run, asked, rows) if forced_of(run, asked).written is not None else []
    found = []
    for place, (scores, likely) in enumerate(zip(rows, rows.softmax(dim=-1), strict=True)):
        best = scores.topk(min(CANDIDATES, len(scores))).indices.tolist()
        chosen = after[place] if place < len(after) else None
        best += [chosen] if chosen is not None and chosen not in best else []
        found.append(
            [
                {
                    "id": each,
                    "text": name(names[each]),
                    "logit": round(float(scores[each]), 4),
                    "probability": round(float(likely[each]), 5),
                    "chosen": each == chosen,
                }
                for each in best
            ]
        )
    return found


def _numbers(trace: Trace) -> list[list[dict[str, Any]]]:
    """The first numbers that the model answers with."""
    *_, axis = trace.kept.axes_of("logits")
    named = list(enumerate(zip(trace.axes("logits")[axis], trace["logits"][0].tolist(), strict=True)))
    return [[{"id": at, "text": name(text), "logit": round(value, 4)} for at, (text, value) in named[:NUMBERS]]]


def part(run: Any, options: Unfold) -> Answer:
    """What is inside a part of the model, for one head and one token."""
    trace = layer_trace(run, options, options.part)
    found = unfold(run, trace, options.part, options.token, options.head)
    arrays: dict[str, Array] = {}
    tables = {key: _table(key, table, found, options.token, arrays) for key, table in found.tables.items()}
    facts = dict(found.facts)
    if (mask := facts.pop("allowed", None)) is not None:
        rows, columns = (_window(size, options.token) for size in mask.shape)
        arrays["allowed"] = mask[rows, columns].to(torch.uint8).numpy()
    keys = found.keys[_window(len(found.keys), options.token)]
    return Answer(
        {
            "part": asdict(found.part),
            "token": options.token,
            "head": options.head,
            "keys": [name(each) for each in keys],
            "tables": tables,
            "facts": facts,
        },
        arrays,
    )


def _table(key: str, table: Table, found: Unfolded, token: int, arrays: dict[str, Array]) -> dict[str, Any]:
    """One table without its numbers, which go into `arrays`; a long text is cut to a window around the token."""
    values, rows, first, first_column = table.values, table.rows, table.first, 0
    if len(values) > WINDOW:
        window = _window(len(values), token)
        values, rows, first = values[window], rows[window], window.start
    if table.columns == "key" and values.shape[1] > WINDOW:
        window = _window(values.shape[1], token)
        values, first_column = values[:, window], window.start
    arrays[key] = values.numpy().astype(np.float32)
    return {
        "point": table.point,
        "rows": [name(each) if each else "" for each in rows],
        "columns": table.columns,
        "head": table.head,
        "first": first,
        "first_column": first_column,
        "places": table.places,
        "total": len(table.values),
    }


def _window(size: int, token: int) -> slice:
    """Tokens around one, all of them where there are few."""
    first = max(0, min(token - WINDOW // 2, size - WINDOW))
    return slice(first, min(size, first + WINDOW))


def cell(run: Any, options: Cell) -> Answer:
    """How one number was made."""
    point = "logits" if options.point == PROBABILITIES else options.point
    trace = layer_trace(run, options, point)
    found = sum_of(run, trace, options.point, options.token, options.at, options.head)
    return Answer({**options.model_dump(exclude=set(Output.model_fields)), **said(found)})


def said(found: Sum) -> dict[str, Any]:
    """A working as a page writes it: the largest terms of each step, and the sum of the others."""
    steps = []
    for step in found.steps:
        largest, rest = step.largest(TERMS)
        steps.append(
            {
                "name": step.name,
                "factors": list(step.factors),
                "function": step.function,
                "total": step.total,
                "value": step.value,
                "terms": [
                    {"label": name(each.label), "factors": list(each.factors), "value": each.value} for each in largest
                ],
                "others": {"count": len(step.terms) - len(largest), "value": rest},
            }
        )
    return {"point": found.point, "value": found.value, "steps": steps}


VIEWS = (
    View("inside", Output, overview, body=IMAGE),
    View("inside.part", Unfold, part, body=IMAGE),
    View("inside.cell", Cell, cell, body=IMAGE),
)
