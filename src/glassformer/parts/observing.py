"""Observing: named points at which somebody may read, or change, what passes through a model.

A part that has points calls `self.seen("hidden", x)` wherever a tensor passes one of them, and goes on with what it
gets back. While nobody observes, that is one look at an attribute. `glassformer.looking` attaches observers, which
record what passes or put something else in its place.

B batch, T length, N slots
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from torch import Tensor, nn

Axes = dict[str, int | None]  # the axes of a tensor by name, with their lengths; None: it depends on the input


def axes(**others: int | None) -> Axes:
    """The axes of a point: sentences first, then the others. A `feature` axis of None has the width of the model."""
    return {"sentence": None, **others}


class Watcher(Protocol):
    """Whoever follows a decoding: it is told which beams go on, what the search considered, and what it chose."""

    def select(self, beams: Tensor, sentences: Tensor | None) -> None:
        """The decoding goes on with these beams of these sentences, as `DecodingState.select` says."""

    def prune(self, slots: Tensor) -> None:
        """The cache now holds these slots of each sentence alone, (B, N), in this order."""

    def expand(self, expansion: Any) -> None:
        """A beam search has considered these candidates."""

    def finish(self, outputs: Any) -> None:
        """A beam search has ended with these outputs for each sentence, best first."""


class Observer(Protocol):
    """Whoever observes a part: it is handed each tensor that passes a point, and says what goes on instead."""

    def __call__(self, name: str, x: Tensor, at: int | None = None) -> Tensor:
        """What goes on in place of x at the point of this name.

        `at` is for parts that go from token to token: x is of the token with this number alone, without an axis for it.
        """

    def wants(self, *names: str) -> bool:
        """Whether one of these points is observed at all: what only observers need is computed only then."""

    def begin(self, tokens: Tensor, position: int | Tensor | None = None, watcher: Watcher | None = None) -> None:
        """A stack begins with tokens (B, T): all of some texts, or where there is a watcher, a part of its decoding."""

    def start(self) -> Watcher:
        """A stack is about to decode; who follows that."""


class Observable(nn.Module):
    """A part with points. A copy of it is observed by nobody."""

    observe: Observer | None = None

    def points(self) -> Mapping[str, Axes]:
        """The points by name, in the order in which they are passed."""
        raise NotImplementedError

    def seen(self, name: str, x: Tensor) -> Tensor:
        """What goes on at a point: x itself, unless an observer changes it."""
        return x if self.observe is None else self.observe(name, x)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "observe": None}


def share_observers(model: nn.Module, copy: nn.Module) -> None:
    """Let a copy of a model be observed by whoever observes the model, or by nobody."""
    for part, other in zip(_observable(model), _observable(copy), strict=True):
        other.observe = part.observe


def _observable(model: nn.Module) -> list[Observable]:
    return [part for part in model.modules() if isinstance(part, Observable)]
