"""Traces for the views that look inside: one pass over a text and what the run makes of it, with a few points kept.

What a run writes for a text is found once; a layer is recorded when it is asked for, and the last few are kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from glassformer.looking.patching import Forced
from glassformer.looking.points import Names, Numbers, points, points_of, tells_numbers
from glassformer.looking.recording import record
from glassformer.looking.trace import WRITTEN, Trace
from glassformer.studio.items import item_of
from glassformer.studio.views.traces import Output, Reading, looked

_Value = TypeVar("_Value")  # what is remembered
KEPT = 6  # traces of each run
READ = 1 << 18  # tokens that the model reads for one answer, over all times that it reads: some seconds of a small one

_forced: WeakKeyDictionary[Any, OrderedDict[Any, Forced]] = WeakKeyDictionary()
_traces: WeakKeyDictionary[Any, OrderedDict[Any, Trace]] = WeakKeyDictionary()


def forced_of(run: Any, asked: Output) -> Forced:
    """What the model takes to read a text and write what the run writes for it."""
    output = _output(asked)
    return _remembered(_forced, run, output, lambda: _forced_anew(run, output))


def written_of(run: Any, asked: Output) -> list[int] | None:
    """The tokens that the run writes for a text, or after it; None: it writes nothing."""
    forced = forced_of(run, asked)
    if not run.extends:
        return forced.written
    return forced.inputs[0][0].tolist()[len(run.read(item_of(run, asked.text))) :]  # type: ignore[no-any-return]


def _output(asked: Output) -> Output:
    """What of a question decides the output."""
    return Output(**{name: getattr(asked, name) for name in Output.model_fields})


def _forced_anew(run: Any, output: Output) -> Forced:
    item = item_of(run, output.text)
    if not output.decoding and not (run.extends and output.length):
        found: Forced = run.forced(item)
        return found
    read = looked(run, Reading(**output.model_dump()), keep=["logits"])["decoder.tokens"][0]
    tokens = [token for token in read.tolist() if token >= 0]
    return run.forced(item, tokens[len(run.read(item)) if run.extends else 1 :])  # type: ignore[no-any-return]


def trace_of(
    run: Any, asked: Output, keep: tuple[str, ...] | None = None, layers: tuple[int, ...] | None = None
) -> Trace:
    """The trace of one pass over a text and what is written for it: all tokens at once, so that nothing is missing."""
    return _remembered(_traces, run, (_output(asked), keep, layers), lambda: _recorded(run, asked, keep, layers))


def layer_trace(run: Any, asked: Output, point: str) -> Trace:
    """What is needed to write out how a number of a layer was made: this layer, and the stream before it."""
    words = point.split(".")
    layer = int(words[1]) if len(words) > 1 and words[1].isdigit() else None
    if layer is None:
        return trace_of(run, asked, streams(run))
    return trace_of(run, asked, None, (layer, layer - 1) if layer else (0,))


def tells_scores(run: Any) -> bool:
    """Whether the run's model scores words or labels: numbers that it answers with are no scores."""
    return "logits" in points(run) and not tells_numbers(run)


def count_of(run: Any, asked: Output) -> int:
    """How many tokens the model reads, in all its stacks."""
    tokens = forced_of(run, asked).tokens
    return sum(len(tokens[stack][0]) for stack in tokens if stack != WRITTEN)


def can_read(times: int, run: Any, asked: Output) -> bool:
    """Whether the text may be read so many times for one answer: nobody else is answered meanwhile."""
    return times * count_of(run, asked) <= READ


def heads_of(run: Any) -> int:
    """How many heads a model has."""
    return sum(point.axes["head"] or 0 for name, point in points_of(run.model).items() if name.endswith(".heads"))


def streams(run: Any) -> tuple[str, ...]:
    """The points of the residual stream or of states, of embeddings, and the logits."""
    ends = ("tokens", "values", "embedding", "positions", "before", "patches", "logits")
    found = []
    for name in points(run):
        last, dots = name.rpartition(".")[2], name.count(".")
        stream = (last in ("after", "state", "cell") and dots >= 2) or name.startswith("decoder.cross.")
        if last in ends or (last == "output" and dots == 1) or stream:
            found.append(name)
    return tuple(found)


def follows(run: Any, asked: Output, logits: Tensor) -> list[int]:
    """What comes after each place of the output (T, V): what was written, what the text goes on with, or the likeliest.

    A run that fills in or labels says at each place what is likeliest there.
    """
    forced, likeliest = forced_of(run, asked), [int(each) for each in logits.argmax(dim=-1)]
    if forced.written is not None:
        ended = len(forced.tokens[WRITTEN][0]) > len(forced.written)
        return [*forced.written, *([run.special.end] if ended else [])][: len(likeliest)]
    reads = forced.inputs[0][0].tolist() if "decoder" in forced.tokens and len(likeliest) > 1 else []
    return [*reads[1:], *likeliest[len(reads[1:]) :]]


def _recorded(run: Any, asked: Output, keep: Names | None, layers: Numbers | None) -> Trace:
    item, forced = item_of(run, asked.text), forced_of(run, asked)
    with record(run.model, keep, layers) as trace, torch.inference_mode():
        run.model(*forced.inputs)
    about = run.description(item, {**forced.tokens, **run.spellings(trace)}, forced.words)
    if forced.written is not None:
        about = replace(about, output=run.output_text(item, forced.written))
    return trace.described(about)


def _remembered(
    memory: WeakKeyDictionary[Any, OrderedDict[Any, _Value]], run: Any, key: Any, make: Callable[[], _Value]
) -> _Value:
    """What was made before for a run, or is made now; the oldest is forgotten."""
    kept = memory.setdefault(run, OrderedDict())
    if key not in kept:
        kept[key] = make()
        while len(kept) > KEPT:
            kept.popitem(last=False)
    kept.move_to_end(key)
    return kept[key]
