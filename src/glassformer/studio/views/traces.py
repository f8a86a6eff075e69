"""Traces that views ask for: what happens inside a run while it reads a text and writes, perhaps with changes.

The last ones are kept: several views, and several heads of one view, ask for the same.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

from pydantic import Field

from glassformer.decoding import Sampler
from glassformer.errors import InputError
from glassformer.looking import intervene, points
from glassformer.looking.points import layer_of
from glassformer.looking.trace import Trace, kind_of_weights
from glassformer.studio.faces import kept
from glassformer.studio.items import item_of
from glassformer.studio.views.view import Given, Head, Kind, Layer, Options, Place

KEPT = 6


class HeadName(Options):
    """One head of a model."""

    kind: Kind
    layer: Layer
    head: Head


class Attend(Options):
    """Attention that is set by hand: at one step, heads read one token of the source.

    Of a run that goes on where a text ends, a step is the place of the token that reads.
    """

    step: Place
    key: Place
    layer: Layer | None = None  # None: all
    head: Head | None = None
    weight: Annotated[float, Field(gt=0, le=1)] = 1.0


class Draw(Options):
    """Tokens are drawn, in place of a search."""

    temperature: Annotated[float, Field(ge=0.05, le=5)] = 1.0
    top_k: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    seed: Annotated[int, Field(ge=0, le=2**31)] = 0


class Output(Options):
    """A text to read, and how its output is found; `prefix` are its first tokens, from which decoding goes on.

    `length` is for runs that go on where a text ends: how many tokens they write at most.
    """

    text: Given
    length: Annotated[int, Field(ge=0, le=200)] = 20
    prefix: Annotated[tuple[Annotated[int, Field(ge=0, le=2**31)], ...], Field(max_length=512)] = ()
    beam: Annotated[int, Field(ge=1, le=20)] | None = None
    length_penalty: Annotated[float, Field(ge=-5, le=5)] | None = None
    draw: Draw | None = None

    @property
    def decoding(self) -> dict[str, Any]:
        """What it says of decoding, as `run.look` takes it."""
        found = {name: value for name in ("beam", "length_penalty") if (value := getattr(self, name)) is not None}
        if self.prefix:
            found["prefix"] = self.prefix
        return found if self.draw is None else {**found, "sampler": Sampler(**self.draw.model_dump())}


class Reading(Output):
    """And what is changed inside the model: heads that are switched off, attention that is set by hand."""

    off: Annotated[tuple[HeadName, ...], Field(max_length=64)] = ()
    attend: Attend | None = None


_kept: OrderedDict[tuple[Any, ...], tuple[Any, Trace]] = OrderedDict()  # and the run, so that no other has its number


def looked(run: Any, how: Reading, keep: Sequence[str] | None = None) -> Trace:
    """What a run does with a text; if nothing is named to keep, what is kept is what faces show."""
    keep = kept(run) if keep is None else keep
    own = {name: getattr(how, name) for name in Reading.model_fields}
    key = (id(run), *own.values(), tuple(keep))
    if key not in _kept:
        if (how.decoding or how.attend) and not run.searches:
            raise InputError("this run reads a text and writes none: nothing can be searched, forced or drawn")
        length = {"length": how.length} if run.extends else {}
        with changed(run, how):
            _kept[key] = run, run.look(item_of(run, how.text), keep=list(keep), **how.decoding, **length)
    _kept.move_to_end(key)
    while len(_kept) > KEPT:
        _kept.popitem(last=False)
    return _kept[key][1]


@contextmanager
def changed(run: Any, how: Reading) -> Iterator[None]:
    """In which a run's model is changed as is asked."""
    with intervene(run) as edit:
        _change(edit, run, how)
        yield


def _change(edit: Any, run: Any, how: Reading) -> None:
    """Switch heads off, and set attention by hand."""
    for each in how.off:
        try:
            edit.zero(_points(run, each.kind, each.layer, "heads"), heads=each.head)
        except InputError:
            raise InputError(f"there is no head {each.head} in layer {each.layer} of {each.kind}") from None
    if (hand := how.attend) is not None:
        names = _points(run, run.attention_kind, hand.layer, "weights")
        edit.attend(names, key=hand.key, query=hand.step, heads=hand.head, weight=hand.weight)


def _points(run: Any, kind: str, layer: int | None, local: str) -> list[str]:
    """The points of this name of one kind of attention, in a layer or in all; recurrent models have none there."""
    ending = f".{local}"
    found = [
        name
        for name in points(run)
        if name.endswith(ending)
        and kind_of_weights(f"{name.removesuffix(ending)}.weights") == kind
        and layer in (None, layer_of(name) or 0)
    ]
    if not found:
        raise InputError(f"there is no layer {layer} of {kind}")
    return found
