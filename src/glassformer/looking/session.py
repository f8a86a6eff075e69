"""A session: while somebody looks into a model, it knows which pass is under way and hands each tensor around.

A pass is one run through a stack: over all tokens of some texts, or over one more token of each beam. All that passes
the points of a model is first changed by interventions, then kept by the recording.

While several beams are decoded, the keys of a decoder's self-attention are slots of its cache, which all beams share.
Observers see for each beam the keys of its own past instead, in their order: what it wrote, token by token.

B sentences, T tokens of a pass (of a step: its k beams), k beams, S keys, N slots or tokens so far, W width, H heads
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.decoding.protocol import Hypothesis
from glassformer.decoding.tree import BeamTrees
from glassformer.errors import GlassformerError
from glassformer.looking.points import Point, points_of, stack_of
from glassformer.parts.observing import Observable, Watcher


@dataclass(eq=False)
class Pass:
    """One run through a stack: over all tokens of some texts, or one step of a decoding."""

    stack: str
    decoding: Decoding | None = None
    step: Step | None = None
    alone: bool = False  # a part was called outside of any stack

    def view(self, point: Point, x: Tensor, at: int | None) -> Tensor:
        """A tensor as observers see it: with an axis for tokens, and for each beam the keys of its own past."""
        if at is not None:
            return x[:, None] if self.step is None else x.view(*self.step.tokens.shape, -1)  # (B, T, W)
        return x.gather(-1, self._slots(x)) if self._has_slots(point) else x

    def undo(self, point: Point, x: Tensor, view: Tensor, at: int | None) -> Tensor:
        """A view, back in the form of x."""
        if at is not None:
            return view.flatten(0, 1)
        return x.scatter(-1, self._slots(x), view) if self._has_slots(point) else view

    def positions(self, length: int, at: int | None, device: torch.device) -> Tensor:
        """Where the tokens of a view stand, (B or 1, T); the view has so many."""
        if self.step is not None:
            return self.step.positions
        return torch.arange(length, device=device)[None] if at is None else torch.tensor([[at]], device=device)

    def sentences(self, count: int, device: torch.device) -> Tensor:
        """Which sentence of the input each row of a view is, (B)."""
        return torch.arange(count, device=device) if self.step is None else self.step.sentences

    def _has_slots(self, point: Point) -> bool:
        return self.step is not None and "key" in point.axes and ".self." in f".{point.name}"

    def _slots(self, x: Tensor) -> Tensor:
        """The slots of each beam's past, for all heads of x (B, H, k, S): (B, H, k, N)."""
        assert self.step is not None  # noqa: S101  (`_has_slots`)
        return self.step.path[:, None].expand(-1, x.shape[1], -1, -1)


@dataclass(eq=False)
class Step:
    """One more token for each beam of a decoding, (B, k)."""

    number: int
    tokens: Tensor  # (B, k)
    sentences: Tensor  # (B): which sentence of the input each row is
    positions: Tensor  # (B or 1, k): where the tokens stand
    path: Tensor  # (B, k, N): the slots of each beam's past, itself the last; then those of padding in its prompt
    parents: Tensor | None  # (B, k): which row of the last step, counted through all beams, each beam continues

    @property
    def beams(self) -> int:
        """How many beams each sentence has."""
        return self.tokens.shape[1]


@dataclass(eq=False)
class Decoding(Watcher):
    """One decoding of some sentences: its passes, the search tree of each sentence, and what was chosen."""

    rows: Tensor | None = None  # (B, k): which row of the last step each beam continues; None: there was no step
    steps: list[Step] = field(default_factory=list)
    trees: BeamTrees = field(default_factory=BeamTrees)
    chosen: list[Hypothesis] = field(default_factory=list)  # of each sentence; nothing: no search has chosen
    slots: int = 0
    prompt: int = 0  # the first of them, which hold the prompt
    moved: Tensor | None = None  # (B, N): the slots of the last step that were kept, if others were given up
    ways: dict[tuple[int, int, int], list[tuple[int, int, int]]] = field(default_factory=dict)  # that were followed
    ends: list[tuple[int, int, int]] = field(default_factory=list)  # step, row and beam of what has finished

    def select(self, beams: Tensor, sentences: Tensor | None) -> None:
        if self.rows is None:
            return
        if sentences is not None:
            self.rows = self.rows[sentences]
            self.moved = None if self.moved is None else self.moved[sentences]
        self.rows = self.rows.gather(1, beams)

    def prune(self, slots: Tensor) -> None:
        self.moved, self.slots = slots, slots.shape[1]

    def expand(self, expansion: Any) -> None:
        self.trees(expansion)
        if self.steps:  # else what has finished is the prompt alone
            parents = expansion.candidates.parents
            ended = expansion.finished.nonzero().tolist()
            self.ends += [(len(self.steps) - 1, row, int(parents[row, rank])) for row, rank in ended]

    def finish(self, outputs: list[list[Hypothesis]]) -> None:
        self.chosen = [best for best, *_ in outputs]

    def step(self, tokens: Tensor, position: int | Tensor) -> Step:
        """One more token for each beam, (B, k), at a position."""
        (count, beams), device = tokens.shape, tokens.device
        parents, sentences = None, torch.arange(count, device=device)
        path = torch.arange(self.slots, device=device).expand(count, beams, -1)  # the prompt
        if self.rows is not None:
            last, parents = self.steps[-1], self.rows.expand(count, beams)
            sentences = last.sentences[parents[:, 0] // last.beams]
            path = self._numbered_anew(last.path.flatten(0, 1)[parents])
        own = (self.slots + torch.arange(beams, device=device)).expand(count, beams)[..., None]
        at = position if isinstance(position, Tensor) else torch.tensor([[position]], device=device)
        path = self._padding_last(torch.cat((path, own), dim=-1), sentences, at)
        new = Step(len(self.steps), tokens, sentences, at.expand(-1, beams), path, parents)
        self.rows, self.slots = torch.arange(tokens.numel(), device=device).view(count, beams), self.slots + beams
        self.steps.append(new)
        return new

    def _numbered_anew(self, path: Tensor) -> Tensor:
        """The same slots (B, k, N) by the numbers that they have since others were given up."""
        if self.moved is None:
            return path
        (count, kept), most = self.moved.shape, int(max(path.max(), self.moved.max())) + 1
        numbers = torch.arange(kept, device=path.device).expand(count, -1)
        numbers = path.new_zeros(count, most).scatter(1, self.moved, numbers)  # (B, the old N)
        self.moved = None
        return numbers[:, None].expand(-1, path.shape[1], -1).gather(2, path)

    def read_of(self, sentence: int) -> int:
        """How many tokens of its prompt a sentence had read before the first step."""
        if not self.steps or not self.prompt:
            return self.prompt
        positions = self.steps[0].positions
        return int(positions[min(sentence, len(positions) - 1), 0])

    def _padding_last(self, path: Tensor, sentences: Tensor, at: Tensor) -> Tensor:
        """Slots (B, k, N) in the order in which they were read, those of padding in a prompt behind all others."""
        if not self.prompt:
            return path
        first = self.steps[0].positions[:, :1] if self.steps else at  # (B or 1, 1): how much of a prompt is real
        read = (first[sentences] if len(first) > 1 else first)[:, :, None]  # (B or 1, 1, 1)
        is_padding = (path >= read) & (path < self.prompt)
        return path.gather(-1, is_padding.to(torch.uint8).argsort(dim=-1, stable=True))

    def followed(self, sentence: int) -> list[tuple[int, int, int]]:
        """The way of one output through the steps: of each step its number, the row and the beam.

        The output is the one that a beam search has chosen, or without a search the first beam of the last step.
        """
        when = (sentence, len(self.steps), len(self.chosen))
        if when not in self.ways:
            self.ways[when] = self._way(sentence)
        return self.ways[when]

    def alive(self) -> list[set[tuple[int, int]]]:
        """Of each step, the rows and beams that an output still descends from, or may yet.

        These are the beams of the last step, what has finished, and what a sentence had come to when it was left out;
        once a search has chosen, only what it chose.
        """
        found: list[set[tuple[int, int]]] = [set() for _ in self.steps]
        if self.chosen:
            for sentence in range(len(self.chosen)):
                for number, row, beam in self.followed(sentence):
                    found[number].add((row, beam))
            return found
        for number, row, beam in self.ends:
            found[number].add((row, beam))
        later: set[int] = set()
        for number in range(len(self.steps))[::-1]:
            step = self.steps[number]
            sentences = step.sentences.tolist()
            found[number] |= {(row, b) for row, s in enumerate(sentences) if s not in later for b in range(step.beams)}
            later = set(sentences)
            if step.parents is not None and number:
                parents, beams = step.parents.tolist(), self.steps[number - 1].beams
                found[number - 1] |= {divmod(parents[row][beam], beams) for row, beam in found[number]}
        return found

    def _way(self, sentence: int) -> list[tuple[int, int, int]]:
        end, way = self._end_of(sentence), list[tuple[int, int, int]]()
        while end is not None:
            number, row, beam = end
            way.append(end)
            parents, end = self.steps[number].parents, None
            if parents is not None:
                end = (number - 1, *divmod(int(parents[row, beam]), self.steps[number - 1].beams))
        return way[::-1]

    def _end_of(self, sentence: int) -> tuple[int, int, int] | None:
        """The last step of an output."""
        tokens: list[int] | None = None
        if self.chosen:
            best = self.chosen[sentence]
            tokens = best.tokens if best.finished else best.tokens[:-1]
        for number in range(len(self.steps))[::-1]:
            found = (self.steps[number].sentences == sentence).nonzero().flatten().tolist()
            for beam in range(self.steps[number].beams) if found else ():
                if tokens is None or (number == len(tokens) and self._history(number, found[0], beam) == tokens):
                    return number, found[0], beam
        return None

    def _history(self, number: int, row: int, beam: int) -> list[int]:
        """The tokens that a beam has read since the first step."""
        found: list[int] = []
        while (parents := self.steps[number].parents) is not None:
            found.append(int(self.steps[number].tokens[row, beam]))
            number -= 1
            row, beam = divmod(int(parents[row, beam]), self.steps[number].beams)
        return found[::-1]


Change = Callable[[Point, Tensor, Pass, int | None], Tensor]  # what goes on in place of a view, at a point in a pass
Keep = Callable[[Point, Tensor, Pass, int | None], None]
Begin = Callable[[Pass, Tensor], None]


class Session:
    """Whoever looks into one model: interventions, which change what passes, and a recording, which keeps it."""

    def __init__(self, model: nn.Module) -> None:
        self.model, self.points = model, points_of(model)
        self.changes: dict[str, list[Change]] = {}
        self.kept: frozenset[str] = frozenset()
        self.keep: Keep | None = None
        self.starting: Begin | None = None  # is told of every pass before it begins
        self.now: Pass | None = None

    def attach(self) -> None:
        """Observe the parts at whose points somebody looks, and stacks, which say what pass is under way."""
        wanted: dict[Observable, set[str]] = {}
        stacks: dict[Observable, str] = {}
        active = self.keep is not None or bool(self.changes)
        for name, point in self.points.items():
            stacks.setdefault(point.part, stack_of(name))
            if name in self.changes or name in self.kept:
                wanted.setdefault(point.part, set()).add(point.local)
        names = {(point.part, point.local): name for name, point in self.points.items()}
        for part, stack in stacks.items():
            local = wanted.get(part, set())
            of_part = {each: names[part, each] for each in local}
            part.observe = Port(self, stack, of_part) if active and (local or hasattr(part, "embedding")) else None

    def embedding(self, stack: str) -> Any:
        """The embedding of a stack."""
        parts = (point.part for name, point in self.points.items() if stack_of(name) == stack)
        return next(part.embedding for part in parts if hasattr(part, "embedding"))

    def begin(self, new: Pass, tokens: Tensor) -> None:
        """A pass begins."""
        self.now = new
        if self.starting is not None:
            self.starting(new, tokens)

    def passing(self, name: str, x: Tensor, at: int | None) -> Tensor:
        """What goes on in place of x at a point."""
        point, now = self.points[name], self.now
        if now is None or (now.alone and now.stack != stack_of(name)):
            now = self.now = Pass(stack_of(name), alone=True)
        view = old = now.view(point, x, at)
        for change in self.changes.get(name, ()):
            view = change(point, view, now, at)
        if self.keep is not None and name in self.kept:
            self.keep(point, view, now, at)
        return x if view is old else now.undo(point, x, view, at)


class Port:
    """The observer of one part: it knows the names of its points in the model."""

    def __init__(self, session: Session, stack: str, names: dict[str, str]) -> None:
        self.session, self.stack, self.names = session, stack, names

    def __call__(self, name: str, x: Tensor, at: int | None = None) -> Tensor:
        return x if name not in self.names else self.session.passing(self.names[name], x, at)

    def wants(self, *names: str) -> bool:
        """Whether somebody looks at one of these points."""
        return not self.names.keys().isdisjoint(names)

    def begin(self, tokens: Tensor, position: int | Tensor | None = None, watcher: Watcher | None = None) -> None:
        """A pass over tokens (B, T) begins."""
        new = Pass(self.stack)
        if isinstance(watcher, Decoding):
            if position is None:  # the prompt
                new, watcher.slots, watcher.prompt = Pass(self.stack, watcher), tokens.shape[1], tokens.shape[1]
            else:
                new = Pass(self.stack, watcher, watcher.step(tokens, position))
        self.session.begin(new, tokens)

    def start(self) -> Decoding:
        """A decoding begins: until its first token, keys and values of the source may pass."""
        decoding = Decoding()
        self.session.now = Pass(self.stack, decoding)
        return decoding


SESSIONS: dict[nn.Module, Session] = {}  # of the models that somebody looks into now


@contextmanager
def uncompiled() -> Iterator[None]:
    """What was compiled runs as it is written: observers cannot be compiled."""
    if "torch._dynamo" not in sys.modules:  # nothing was compiled
        yield
        return
    with torch.compiler.set_stance("force_eager"):
        yield


@contextmanager
def session_of(model: nn.Module) -> Iterator[Session]:
    """The session of a model: the one under way, or a new one."""
    with uncompiled(), _session_of(model) as session:
        yield session


@contextmanager
def _session_of(model: nn.Module) -> Iterator[Session]:
    found = SESSIONS.get(model)
    if found is not None:
        try:
            yield found
        finally:
            found.attach()
        return
    session = Session(model)
    if any(point.part.observe is not None for point in session.points.values()):
        raise GlassformerError(
            "somebody looks into this model already, as a part of another one, or the other way round"
        )
    SESSIONS[model] = session
    try:
        yield session
    finally:
        del SESSIONS[model]
        for point in session.points.values():
            point.part.observe = None
