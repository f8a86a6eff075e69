"""Interventions: change what passes the points of a model while it works.

    with gf.intervene(model) as edit:
        edit.zero("decoder.1.self.heads", heads=2)
        edit.patch("encoder.0.after", trace, positions=3)
        edit.attend("decoder.2.cross", query=4, key=1)
        model(source, target)

Names are those of traces. What is written back as it was changes no bit of the output. While decoding, a position is
the number of the step, with the prompt counted in; all beams of a sentence are changed alike.

B sentences, T tokens, S keys, H heads, k beams
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from glassformer.errors import InputError
from glassformer.looking.points import Names, Numbers, Point, find, find_all, model_of, numbers
from glassformer.looking.recording import check_heads
from glassformer.looking.session import Change, Pass, Session, session_of
from glassformer.looking.trace import Trace

Function = Callable[[Tensor], Tensor]
Make = Callable[[Point, Tensor, Pass, int | None], Tensor]  # what to put in place of a view


class Edit:
    """The changes to one model, in the order in which they were named. Each stays until the `with` ends, or `clear`.

    `name` may be a pattern, as for `record`: all points that it says are changed. `heads` and `positions` are numbers
    from 0; without them, all are changed. Where there is no token (the keys of a source), positions are those of keys.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    def zero(self, name: Names, heads: Numbers | None = None, positions: Numbers | None = None) -> None:
        """Put zeros in place of what passes."""
        self._add(name, heads, positions, lambda point, x, now, at: torch.zeros_like(x))

    def mean(
        self, name: Names, trace: Trace | None = None, heads: Numbers | None = None, positions: Numbers | None = None
    ) -> None:
        """Put a mean in place of what passes: over all tokens of a trace, or without one, of the same text.

        Weights and scores of attention become equal for all keys that a token attends to. Tokens of padding count.
        """
        for each in self._names(name):
            means = None if trace is None else _mean_of(trace, each)

            def make(point: Point, x: Tensor, now: Pass, at: int | None, means: Tensor | None = means) -> Tensor:
                if point.local in ("scores", "weights"):
                    return _even(x) if point.local == "weights" else x.mean(dim=-1, keepdim=True).expand_as(x)
                if means is not None:
                    return means.to(x).expand_as(x)
                axis = next((axis for axis in ("token", "key") if axis in _axes(point, x)), None)
                if axis is None or (axis == "token" and (at is not None or now.decoding is not None)):
                    raise InputError(
                        f"{point.name} passes token by token here, so its mean is not known yet: take it from a trace, "
                        f'edit.mean("{point.name}", trace)'
                    )
                return x.mean(dim=_axes(point, x).index(axis), keepdim=True).expand_as(x)

            self._add(each, heads, positions, make)

    def set(
        self, name: Names, value: Tensor | float, heads: Numbers | None = None, positions: Numbers | None = None
    ) -> None:
        """Put a value in place of what passes: a number, a tensor that broadcasts, or one for all positions.

        A tensor with as many axes as the point is read by position: in a pass over a whole text it has its length, in
        a step of decoding its row for the position is taken. Positions beyond its end stay as they are while decoding.
        """
        given = torch.as_tensor(value)
        self._add(name, heads, positions, partial(_placed, given))

    def patch(self, name: Names, trace: Trace, heads: Numbers | None = None, positions: Numbers | None = None) -> None:
        """Put in what passed the same point when the trace was recorded."""
        for each in self._names(name):
            value = trace[each]
            if (kept := trace.kept.heads_of(find(each, trace.names))) is not None:
                raise InputError(
                    f"the trace holds the heads {', '.join(map(str, kept))} of {each} only: record all to patch"
                )
            self._add(each, heads, positions, partial(_placed, value))

    def apply(
        self, name: Names, function: Function, heads: Numbers | None = None, positions: Numbers | None = None
    ) -> None:
        """Put in what a function makes of what passes: all of it, (B, …), to the same shape."""

        def make(point: Point, x: Tensor, now: Pass, at: int | None) -> Tensor:
            new: Any = function(x)
            if getattr(new, "shape", None) != x.shape:
                given = tuple(new.shape) if isinstance(new, Tensor) else f"a {type(new).__name__}"
                raise InputError(f"the function for {point.name} gave {given}: expected a tensor {tuple(x.shape)}")
            return new  # type: ignore[no-any-return]

        self._add(name, heads, positions, make)

    def attend(
        self,
        name: Names,
        key: Numbers,
        query: Numbers | None = None,
        heads: Numbers | None = None,
        weight: float = 1.0,
    ) -> None:
        """Let tokens (`query`; without it all) read what stands at `key`, or at several keys in equal parts.

        The `weight` is how much of their attention goes there; the rest stays as it was, made smaller, so that a row
        sums to 1. A token that is not written yet when another attends is left out.
        """
        if not 0 < weight <= 1:
            raise InputError(f"the weight of attention must be above 0 and at most 1, not {weight}")
        keys = numbers(key, "key") or []
        for each in self._names(name):
            if not each.endswith(".weights"):
                raise InputError(f'"{each}" is no attention: name one, such as decoder.0.cross')

        def make(point: Point, x: Tensor, now: Pass, at: int | None) -> Tensor:
            there = [each for each in keys if each < x.shape[-1]]
            if not there and (now.decoding is None or ".cross." in point.name):  # a source grows no longer
                raise InputError(f"{point.name} has no key {keys[0]}: it has {x.shape[-1]}")
            wanted = torch.zeros_like(x)
            wanted[..., there] = 1 / max(len(there), 1)
            return (1 - weight) * x + weight * wanted if there else x

        self._add(name, heads, query, make)

    def clear(self) -> None:
        """Undo all changes."""
        self._session.changes.clear()
        self._session.attach()

    def _names(self, name: Names) -> list[str]:
        return find_all(name, self._session.points)

    def _add(self, name: Names, heads: Numbers | None, positions: Numbers | None, make: Make) -> None:
        some, places = numbers(heads, "head"), numbers(positions, "position")
        names = self._names(name)
        for each in names:
            if some is not None and "head" not in self._session.points[each].axes:
                raise InputError(f"{each} has no heads: leave heads out")
            check_heads(some, [self._session.points[each]])
        for each in names:
            self._session.changes.setdefault(each, []).append(_only(some, places, make))
        self._session.attach()


def _only(heads: list[int] | None, positions: list[int] | None, make: Make) -> Change:
    """A change that is made in some heads and at some positions alone."""

    def change(point: Point, x: Tensor, now: Pass, at: int | None) -> Tensor:
        new = make(point, x, now, at)
        where = _where(heads, positions, point, x, now, at)
        new = new.to(x.dtype)
        return new if where is None else torch.where(where, new, x)

    return change


def _where(
    heads: list[int] | None, positions: list[int] | None, point: Point, x: Tensor, now: Pass, at: int | None
) -> Tensor | None:
    """Where a change is made, a table that broadcasts to x; None: everywhere."""
    found, axes = None, _axes(point, x)
    if heads is not None:
        chosen = torch.zeros(x.shape[1], dtype=torch.bool, device=x.device)
        chosen[heads] = True
        found = _along(chosen[None], 1, x)
    if positions is not None:
        here = _here(positions, axes, point, x, now, at)
        found = here if found is None else found & here
    return found


def _here(positions: list[int], axes: list[str], point: Point, x: Tensor, now: Pass, at: int | None) -> Tensor:
    """Where the tokens of a view stand at some positions, a table that broadcasts to x."""
    axis = next((each for each in ("token", "key", "patch") if each in axes), None)
    if axis is None:
        raise InputError(f"{point.name} is of the whole text: leave positions out")
    dim = axes.index(axis)
    places = now.positions(x.shape[dim], at, x.device) if axis == "token" else _count(x.shape[dim], x)
    if now.decoding is None and at is None and max(positions) >= x.shape[dim]:  # a decoding may come to it yet
        raise InputError(f"there is no position {max(positions)} at {point.name}: it has {x.shape[dim]}")
    return _along(torch.isin(places, torch.tensor(positions, device=x.device)), dim, x)


def _along(table: Tensor, dim: int, x: Tensor) -> Tensor:
    """A table (B or 1, T) as one that broadcasts to x, whose axis `dim` is that of T."""
    return table.view(len(table), *(1,) * (dim - 1), -1, *(1,) * (x.dim() - dim - 1))


def _count(length: int, x: Tensor) -> Tensor:
    return torch.arange(length, device=x.device)[None]


def _axes(point: Point, x: Tensor) -> list[str]:
    """The axes of a view: one of a whole text has none for tokens."""
    return [axis for axis in point.axes if axis != "token" or x.dim() == len(point.axes)]


def _placed(value: Tensor, point: Point, x: Tensor, now: Pass, at: int | None) -> Tensor:
    """A value as it goes in place of x: by sentence and position where it has all axes, or as it broadcasts."""
    axes, value = _axes(point, x), value.to(x.device)
    by_position = value.dim() == len(axes) and "token" in axes and value.shape[axes.index("token")] > 1
    try:
        return _rows(value, axes, point, x, now, at) if by_position else value.expand_as(x)
    except (RuntimeError, IndexError):
        raise InputError(
            f"a value {tuple(value.shape)} does not fit {point.name}, where {tuple(x.shape)} passes"
        ) from None


def _rows(value: Tensor, axes: list[str], point: Point, x: Tensor, now: Pass, at: int | None) -> Tensor:
    """The rows of a value (B or 1, …, T, …) that stand at the positions of x, for each of its sentences and beams."""
    if now.decoding is None and at is None:
        return value.expand_as(x)
    if "key" in axes and ".self." in point.name:  # of a token that could not see all keys yet
        missing = max(0, x.shape[-1] - value.shape[-1])
        value = torch.nn.functional.pad(value, (0, missing))[..., : x.shape[-1]]
    if len(value) > 1:
        value = value[now.sentences(len(x), x.device)]
    dim = axes.index("token")
    length = value.shape[dim]
    places = now.positions(x.shape[dim], at, x.device).expand(len(x), x.shape[dim])  # (B, T)
    whole = value.expand(*(length if axis == dim else size for axis, size in enumerate(x.shape)))
    rows = whole.gather(dim, _along(places.clamp(max=length - 1), dim, x).expand(*x.shape))
    return torch.where(_along(places < length, dim, x), rows.to(x.dtype), x)


def _even(weights: Tensor) -> Tensor:
    """Equal weights for all keys that have any."""
    attended = (weights > 0).to(weights.dtype)
    return attended / attended.sum(dim=-1, keepdim=True).clamp(min=1)


def _mean_of(trace: Trace, name: str) -> Tensor:
    """The mean over sentences and tokens of what passed a point, with these axes of length 1."""
    axes = list(trace.kept.axes_of(find(name, trace.names)))
    over = [dim for dim, axis in enumerate(axes) if axis in ("sentence", "token", "key", "patch")]
    return trace[name].float().mean(dim=over, keepdim=True)


@contextmanager
def intervene(model: Any) -> Iterator[Edit]:
    """Change what passes the points of a model, or of a run's model, while something is done with it."""
    with session_of(model_of(model)) as session:
        if session.changes:
            raise InputError("this model is being changed already: use one intervene() at a time")
        edit = Edit(session)
        try:
            yield edit
        finally:
            edit.clear()
