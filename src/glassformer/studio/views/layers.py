"""Layers: what a model would say after each of them, what each part adds, and which words of the text matter.

layers            the logit lens: the likeliest words after each layer, at every place of the output
layers.parts      what each part adds to the score of a word: direct logit attribution
layers.source     how much each word that was read speaks for the word: gradients, or leaving words out
layers.patching   where the difference between two texts is carried

L layers, T places, V vocabulary, k best, P parts
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from glassformer.errors import InputError
from glassformer.looking import patching, points
from glassformer.looking.analyses import (
    Attribution,
    Lens,
    input_x_gradient,
    integrated_gradients,
    logit_attribution,
    logit_lens,
    occlusion,
)
from glassformer.looking.answer import Answer
from glassformer.looking.patching import points_to_patch, preference
from glassformer.looking.plots.choosing import name
from glassformer.looking.points import points_of, stack_of
from glassformer.looking.trace import WRITTEN, Trace
from glassformer.studio.items import item_of
from glassformer.studio.views.passes import (
    can_read,
    count_of,
    follows,
    forced_of,
    heads_of,
    tells_scores,
    trace_of,
    written_of,
)
from glassformer.studio.views.traces import Output
from glassformer.studio.views.view import IMAGE, Given, View

MOST = 128  # places of the output that are shown
BEST = 5  # words of each layer and place
PARTS = ("tokens", "embedding", "positions", "output", "before", "after", "logits")
METHODS = {"input_x_gradient": input_x_gradient, "integrated_gradients": integrated_gradients, "occlusion": occlusion}
Place = Annotated[int, Field(ge=0, le=100_000)]
Word = Annotated[int, Field(ge=0, le=10_000_000)]


class Chosen(Output):
    """A word at a place of the output, and another that it is compared with."""

    position: Place = 0
    token: Word | None = None  # without it, what was written there, or the likeliest
    against: Word | None = None


class Parts(Chosen):
    """And whether attention is taken apart into heads."""

    heads: bool = False


class Source(Chosen):
    """And how it is found out; `steps` of the path of integrated gradients."""

    method: Literal["input_x_gradient", "integrated_gradients", "occlusion"] = "input_x_gradient"
    steps: Annotated[int, Field(ge=8, le=512)] = 64


class Patching(Chosen):
    """And the other text, which is to be repaired, place by place or head by head."""

    other: Given
    over: Literal["positions", "heads"] = "positions"


def lens(run: Any, options: Output) -> Answer:
    """The likeliest words after each layer at every place; `without` says why there is no lens, or no parts."""
    trace = trace_of(run, options, _kept(run))
    names, logits = _names(run, trace), _rows(trace)
    wanted = follows(run, options, logits)
    header: dict[str, Any] = {
        "input": trace.input,
        "output": trace.output,
        "whole": trace["logits"][0].dim() == 1,
        "places": _places(run, trace, options),
        "total": len(logits),
        "leaves_out": can_read(count_of(run, options), run, options),
        "chosen": [{"id": each, "text": name(names[each])} for each in wanted[:MOST]],
        "candidates": [_best(row, names) for row in logits[:MOST]],
        "stack": "decoder" if "decoder" in forced_of(run, options).tokens else "encoder",
        "words": trace.about.words.get(WRITTEN, [[]])[0],
        "without": {},
        "layers": [],
    }
    try:
        header["layers"] = _layers(logit_lens(run, trace), names, wanted)
        logit_attribution(run, trace, wanted[0], 0)
    except InputError as error:
        header["without"] = {"parts" if header["layers"] else "lens": str(error)}
    return Answer(header)


def _layers(found: Lens, names: list[Any], wanted: list[int]) -> list[dict[str, Any]]:
    """Of each layer, the likeliest words at every place, and how many are likelier than the one that was written."""
    chosen = torch.tensor(wanted)
    said = []
    for point, logits in zip(found.points, found.logits, strict=True):  # (T, V)
        own = logits.gather(1, chosen[: len(logits), None])
        ranks = (logits > own).sum(dim=-1)[:MOST].tolist()
        likely = logits.softmax(dim=-1).gather(1, chosen[: len(logits), None])[:MOST, 0].tolist()
        said.append(
            {
                "point": point,
                "best": [_best(row, names) for row in logits[:MOST]],
                "ranks": ranks,
                "likely": [round(each, 5) for each in likely],
            }
        )
    return said


def _best(logits: Tensor, names: list[Any]) -> list[dict[str, Any]]:
    """The likeliest words of one place, with their probabilities."""
    likely = logits.softmax(dim=-1)
    return [
        {"id": each, "text": name(names[each]), "probability": round(float(likely[each]), 5)}
        for each in logits.topk(min(BEST, len(logits))).indices.tolist()
    ]


def _kept(run: Any) -> tuple[str, ...]:
    """The points that the analyses of the residual stream need, as far as the model has them."""
    return tuple(each for each in points(run) if each.rpartition(".")[2] in PARTS)


def _rows(trace: Trace) -> Tensor:
    """The logits, (T, V); of a whole text, one row."""
    logits = trace["logits"][0].float()
    return logits if logits.dim() == 2 else logits[None]


def _names(run: Any, trace: Trace) -> list[Any]:
    """How the words or labels are spelled that logits score."""
    *_, axis = trace.kept.axes_of("logits")
    return ["begin", "end"] if run.can("answer") else trace.axes("logits")[axis]


def _places(run: Any, trace: Trace, asked: Output) -> list[str]:
    """What is read at each place of the output; of a whole text, nothing."""
    if trace["logits"][0].dim() == 1:
        return [""]
    tokens = forced_of(run, asked).tokens
    stack = "decoder" if "decoder" in tokens else "encoder"
    return [name(each) for each in tokens[stack][0][:MOST]]


def parts(run: Any, options: Parts) -> Answer:
    """How much each part adds to the score of a word; the sum is the score."""
    keep = (*_kept(run), "heads") if options.heads else _kept(run)
    trace = trace_of(run, options, keep)
    token = _token(run, trace, options)
    found = logit_attribution(run, trace, token, options.position, options.against, options.heads)
    names = _names(run, trace)
    return Answer(
        {
            "parts": found.parts,
            "values": [round(each, 5) for each in found.values.tolist()],
            "logit": found.logit,
            "token": name(names[token]),
            "against": None if options.against is None else name(names[options.against]),
        }
    )


def _token(run: Any, trace: Trace, options: Chosen) -> int:
    """The word that is explained: the one that is named, or the one that was written there."""
    logits = _rows(trace)
    if options.position >= len(logits):
        raise InputError(f"there is no place {options.position}: the output has {len(logits)}")
    for each in (options.token, options.against):
        if each is not None and each >= logits.shape[1]:
            raise InputError(f"there is no token {each}: there are 0 to {logits.shape[1] - 1}")
    return follows(run, options, logits)[options.position] if options.token is None else options.token


def source(run: Any, options: Source) -> Answer:
    """How much each word that was read speaks for a word."""
    count = count_of(run, options)
    if options.method == "occlusion" and not can_read(count, run, options):
        raise InputError(
            f"to leave each of {count:,} tokens out takes too long: take a shorter text, or input × gradient"
        )
    if options.method == "integrated_gradients" and not can_read(options.steps, run, options):
        raise InputError(f"{options.steps} steps over {count:,} tokens take too long: take a shorter text, or fewer")
    trace = trace_of(run, options, ("logits",))
    whole = trace["logits"][0].dim() == 1
    more = {"steps": options.steps} if options.method == "integrated_gradients" else {}
    found: Attribution = METHODS[options.method](
        run,
        item_of(run, options.text),
        _token(run, trace, options),
        None if whole else options.position,
        options.against,
        written_of(run, options),
        **more,
    )
    return Answer(
        {
            "method": options.method,
            "score": float(found.outputs[0]),
            "baseline": float(found.baseline[0]),
            "gap": float(found.gap[0]),
            "readings": {
                "pieces": _said(found, options.position, None),
                "words": _said(found.words(), options.position, found.groups),
            },
        }
    )


def _said(found: Attribution, position: int, words: list[list[int]] | None) -> dict[str, Any]:
    """Texts and numbers, by piece or by word; without what a decoder reads after the position, which it cannot see."""
    first = [group[0] for group in words] if words else list(range(len(found.columns)))
    begin = min((at for at, stack in zip(first, found.stacks, strict=True) if stack == "decoder"), default=0)
    seen = [
        place
        for place, (at, stack) in enumerate(zip(first, found.stacks, strict=True))
        if stack != "decoder" or at - begin <= position
    ]
    return {
        "texts": [name(found.columns[each]) for each in seen],
        "stacks": [found.stacks[each] for each in seen],
        "values": [round(float(found.values[0, each]), 5) for each in seen],
    }


def _to_patch(run: Any, options: Patching) -> int:
    """How many heads or places there are to patch."""
    found, names = points_of(run.model), points_to_patch(run, None, options.over)
    if options.over == "heads":
        return sum(found[each].axes["head"] or 0 for each in names)
    return len(names) * len(forced_of(run, options).tokens[stack_of(names[0])][0])


def patched(run: Any, options: Patching) -> Answer:
    """How much of a word's probability comes back, where the other text is patched from this one."""
    trace = trace_of(run, options, ("logits",))
    whole, token = trace["logits"][0].dim() == 1, _token(run, trace, options)
    metric = preference(token, None if whole else options.position, options.against)
    clean, corrupt = item_of(run, options.text), item_of(run, options.other)
    many = _to_patch(run, options)
    if not can_read(many, run, options):
        what, instead = ("heads", "") if options.over == "heads" else ("places", ", or heads" if heads_of(run) else "")
        raise InputError(f"to patch each of {many:,} {what} takes too long: take a shorter text{instead}")
    found = patching(run, clean, corrupt, metric, options.over, None, written_of(run, options))
    forced, stack = forced_of(run, options), stack_of(found.points[0])
    return Answer(
        {
            "points": found.points,
            "labels": [name(each) for each in found.labels],
            "over": found.over,
            "stack": stack,
            "words": forced.words[stack][0] if stack in forced.words else [],
            "clean": found.clean,
            "corrupt": found.corrupt,
        },
        {"effects": found.effects.numpy()},
    )


VIEWS = (
    View("layers", Output, lens, tells_scores, body=IMAGE),
    View("layers.parts", Parts, parts, tells_scores, body=IMAGE),
    View("layers.source", Source, source, tells_scores, body=IMAGE),
    View("layers.patching", Patching, patched, tells_scores, body=IMAGE),
)
