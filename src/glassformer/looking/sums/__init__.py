"""Sums: how a number inside a model was made, written out with its terms.

    found = gf.sum_of(run, trace, "decoder.0.cross.scores", token=3, at=5, head=1)
    found.value    # as it was recorded
    found.steps    # q · k with a term for each feature, then that divided by √d

Factors are numbers that the trace holds, or weights of the model. The last step's value is the recorded number, but
for rounding. Beside the points of traces there are two more: what a part reads (`decoder.0.cross.input`), and
`probabilities`, the softmax of the logits.

T tokens, D width
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from glassformer.errors import InputError
from glassformer.looking.points import find, model_of
from glassformer.looking.sums.ends import (
    begin_steps,
    embedding_steps,
    logit_steps,
    position_steps,
    probability_steps,
    stack_output_steps,
)
from glassformer.looking.sums.place import Place
from glassformer.looking.sums.recurrent import alignment_steps, cell_steps
from glassformer.looking.sums.steps import Step as Step
from glassformer.looking.sums.steps import Term as Term
from glassformer.looking.sums.transformer import attention_steps, feed_forward_steps, read_steps, stream_steps
from glassformer.looking.trace import Trace
from glassformer.parts.alignment import Alignment
from glassformer.parts.attention import MultiHeadAttention
from glassformer.parts.feedforward import FeedForward, GatedFeedForward
from glassformer.parts.recurrent import Recurrent

PROBABILITIES = "probabilities"
Working = Callable[[Place], list[Step]]


@dataclass(frozen=True)
class Sum:
    """How one number was made: it, and the steps that lead to it."""

    point: str
    value: float
    steps: list[Step]

    @property
    def gap(self) -> float:
        """By how much the last step misses the recorded number: rounding."""
        return self.steps[-1].value - self.value


def sum_of(
    model: Any, trace: Trace, point: str, token: int, at: int, head: int | None = None, sentence: int = 0
) -> Sum:
    """How the number at a point was made: of a token, at a feature, a key or a word of the vocabulary, in a head.

    Of keys and values of cross-attention, `token` is the key. Of one answer for a whole text, it is 0.
    """
    inside = model_of(model)
    if point == PROBABILITIES:
        place = Place(inside, trace, point, token, at, 0, sentence)
        steps = probability_steps(place)
        return Sum(point, _at(place.vector("logits").softmax(dim=-1), place), steps)
    if point.endswith(".input") and ".gates." not in point:
        place = Place(inside, trace, point, token, at, 0, sentence)
        find(f"{place.path}.output", trace.names)
        return Sum(point, _at(place.read(place.path), place), read_steps(place))
    point = find(point, trace.names)
    _check_head(trace, point, head)
    place = Place(inside, trace, point, token, at, head or 0, sentence)
    working = _working(place)
    return Sum(point, _at(place.vector(point), place), working(place))


def _at(values: Any, place: Place) -> float:
    if not 0 <= place.at < len(values):
        raise InputError(f"there is no number {place.at} at {place.point}: there are {len(values)}, from 0")
    return float(values[place.at])


def _check_head(trace: Trace, point: str, head: int | None) -> None:
    heads = trace[point].shape[1] if "head" in trace.kept.axes_of(point) else 0
    if trace.kept.heads_of(point) is not None:
        raise InputError(f"the working of {point} needs all heads: record without heads=")
    if (head or 0) >= max(heads, 1) or (head is not None and not heads):
        raise InputError(f"there is no head {head} at {point}: there are {heads}")


def _working(place: Place) -> Working:
    """The function that writes out how a number at a place is made."""
    ends: dict[str, Working] = {
        "embedding": embedding_steps,
        "positions": position_steps,
        "before": begin_steps,
        "logits": logit_steps,
    }
    if place.local in ends:
        return ends[place.local]
    if place.point == f"{place.stack}.output":
        return stack_output_steps
    if place.local == "after":
        return stream_steps
    part = place.part
    parts: list[tuple[Any, Working]] = [
        (MultiHeadAttention, attention_steps),
        (Alignment, alignment_steps),
        (Recurrent, cell_steps),
        ((FeedForward, GatedFeedForward), feed_forward_steps),
    ]
    for kind, working in parts:
        if isinstance(part, kind):
            return working
    raise InputError(f"how {place.point} is made cannot be written out: it is read as it is")
