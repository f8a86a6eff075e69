"""Recording: run a model, and keep what passes its points.

    with gf.record(model) as trace:
        model(source, target)
    trace["decoder.0.cross"]  # (B, H, T, S)
    trace["encoder.0.gates.forget"]  # (B, T, W), of a recurrent model

Whatever is done inside the `with` gives the same numbers to the bit as outside.

B sentences, T tokens, S keys, H heads, W width of a state, k beams
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from glassformer.decoding.tree import BeamTree
from glassformer.errors import GlassformerError, InputError
from glassformer.looking.points import Names, Numbers, Point, find_all, model_of, numbers, stack_of
from glassformer.looking.session import Decoding, Pass, Session, session_of
from glassformer.looking.trace import Kept, Trace
from glassformer.parts.observing import Axes

MOST = 2.0  # GB that a recording takes at most, unless it is told otherwise
GIGABYTE = 1e9
NUMBER = 4  # bytes
PADDING = -1  # stands for no token in a table of tokens
FORGET = 16  # steps of a decoding after which beams are let go that nothing descends from


@dataclass
class Entry:
    """What passed a point in one pass; of a part that goes from token to token, piece by piece."""

    now: Pass
    pieces: list[Tensor] = field(default_factory=list)
    places: dict[tuple[int, int], int] | None = None  # of the rows and beams of a step that are left; None: all are

    def tensor(self, backward: bool) -> Tensor:
        """All of it, its tokens in their order."""
        return self.pieces[0] if len(self.pieces) == 1 else torch.cat(self.pieces[:: -1 if backward else 1], dim=1)

    def of_beam(self, row: int, beam: int, token: int) -> Tensor:
        """Of a step, what passed in one beam of a row; `token` is the axis of tokens without that of sentences."""
        x = self.pieces[0]
        return x[row].narrow(token, beam, 1) if self.places is None else x[self.places[row, beam]]

    def forget(self, alive: set[tuple[int, int]], token: int) -> int:
        """Let go of all beams of a step but some; how many bytes that frees."""
        x, left = self.pieces[0], sorted(alive if self.places is None else alive & self.places.keys())
        if len(left) == (len(x) * x.shape[token + 1] if self.places is None else len(x)):
            return 0
        self.pieces[0] = torch.stack([self.of_beam(*each, token) for each in left]) if left else x[:0].clone()
        self.places = {each: number for number, each in enumerate(left)}
        return x.nbytes - self.pieces[0].nbytes


class Recording(Kept):
    """What a recording keeps, as it passes. Read, the steps of a decoding are one tensor, which follows one beam."""

    def __init__(self, session: Session, names: list[str], heads: list[int] | None, most: float) -> None:
        self.session, self.heads, self.most = session, heads, most
        self.entries: dict[str, list[Entry]] = {name: [] for name in names}
        self.axes: dict[str, Axes] = {name: dict(session.points[name].axes) for name in names}
        self.bytes: dict[str, int] = dict.fromkeys(names, 0)
        self.total = 0
        self.read: dict[str, int] = {}  # by stack, how many tokens it has read last

    def keep(self, point: Point, view: Tensor, now: Pass, at: int | None) -> None:
        """Keep what passes a point."""
        if view.dim() < len(self.axes[point.name]):  # one answer for a whole text
            self.axes[point.name].pop("token", None)
        if (heads := self.heads_of(point.name)) is not None:
            view = view[:, heads]
        entries, copy = self.entries[point.name], view.detach().to("cpu", copy=True)
        if at is None or not entries or entries[-1].now is not now:
            entries.append(Entry(now))
        entries[-1].pieces.append(copy)
        self.bytes[point.name] += copy.nbytes
        self.total += copy.nbytes
        if self.total > self.most * GIGABYTE:
            self._check(self.bytes, " so far")

    def begin(self, now: Pass, tokens: Tensor) -> None:
        """Refuse a pass that would take more memory than there may be; let go of beams that came to nothing."""
        if now.step is not None and now.decoding is not None and now.step.number % FORGET == FORGET - 1:
            self.forget(now.decoding)
        if now.step is not None:
            return
        self.read[now.stack] = length = self.session.embedding(now.stack).length(tokens)
        longest = max(self.read.values())  # the tokens of this pass, or of the source
        lengths = {"sentence": len(tokens), "token": length, "patch": length, "key": longest}
        needed = dict(self.bytes)
        for name in self.entries:
            if stack_of(name) == now.stack or (name == "logits" and now.stack == self._last_stack()):
                point, heads = self.session.points[name], self.heads_of(name)
                kept = 1.0 if heads is None else len(heads) / (point.axes["head"] or 1)
                needed[name] += int(NUMBER * point.size(lengths) * kept)
        self._check(needed, "")

    def forget(self, decoding: Decoding) -> None:
        """Let go of what passed in beams that no output descends from."""
        alive = decoding.alive()
        for name, entries in self.entries.items():
            axes = list(self.axes[name])
            for entry in entries if "token" in axes else ():
                if entry.now.decoding is decoding and entry.now.step is not None:
                    freed = entry.forget(alive[entry.now.step.number], axes.index("token") - 1)
                    self.bytes[name] -= freed
                    self.total -= freed

    def _last_stack(self) -> str:
        return "decoder" if any(stack_of(name) == "decoder" for name in self.session.points) else "encoder"

    def _check(self, needed: dict[str, int], when: str) -> None:
        total = sum(needed.values()) / GIGABYTE
        if total <= self.most:
            return
        kinds: dict[str, int] = {}
        for name, count in needed.items():
            kind = name.split(".")[-1]
            kinds[kind] = kinds.get(kind, 0) + count
        largest = sorted(kinds, key=lambda kind: -kinds[kind])[:3]
        parts = ", ".join(f"{kind} {kinds[kind] / GIGABYTE:.1f}" for kind in largest)
        raise InputError(
            f"this recording needs {total:.1f} GB{when} ({parts}), but may take {self.most:g}: "
            "take a shorter text, name less to keep by keep=, layers= or heads=, or allow more by gigabytes="
        )

    # --- reading

    def names(self) -> list[str]:
        return [name for name, entries in self.entries.items() if entries]

    def axes_of(self, name: str) -> Axes:
        return self.axes[name]

    def heads_of(self, name: str) -> list[int] | None:
        """The heads that are kept; None: all. Keys and values that heads share are all kept."""
        count = self.session.points[name].axes.get("head")
        return None if self.heads is None or count is None or max(self.heads) >= count else self.heads

    def calls(self, name: str) -> list[Tensor]:
        """One tensor for each call: of a pass over whole texts, or of a decoding with all its steps."""
        found: list[Tensor | Decoding] = []
        entries = self.entries[name]
        for entry in entries:
            decoding = entry.now.decoding
            if decoding is None:
                found.append(entry.tensor(".backward." in name))
            elif decoding not in found:
                found.append(decoding)
        return [self._joined(name, each, entries) if isinstance(each, Decoding) else each for each in found]

    def decodings(self) -> list[Decoding]:
        """The decodings that took place."""
        found = {entry.now.decoding: None for entries in self.entries.values() for entry in entries}
        return [each for each in found if each is not None]

    def trees(self) -> list[BeamTree]:
        return [tree for decoding in self.decodings() for tree in decoding.trees]

    def _joined(self, name: str, decoding: Decoding, entries: list[Entry]) -> Tensor:
        """What passed a point in a decoding, (B, …, T, …): of each sentence, what the chosen beam had to do with."""
        mine = [entry for entry in entries if entry.now.decoding is decoding]
        steps = {entry.now.step.number: entry for entry in mine if entry.now.step is not None}
        before = [entry.tensor(False) for entry in mine if entry.now.step is None]
        axes = list(self.axes[name])
        if "token" not in axes:
            return before[0]
        token, rows = axes.index("token") - 1, []
        for sentence in range(len(decoding.steps[0].sentences) if decoding.steps else len(before[0])):
            way = [(number, row, beam) for number, row, beam in decoding.followed(sentence) if number in steps]
            pieces = [each[sentence].narrow(token, 0, decoding.read_of(sentence)) for each in before]
            pieces += [steps[number].of_beam(row, beam, token) for number, row, beam in way]
            rows.append(_together(pieces, token, ".self." in name and "key" in axes))
        return padded(rows, PADDING if name.endswith("tokens") else 0)


def _together(pieces: list[Tensor], token: int, growing: bool) -> Tensor:
    """Pieces after each other along the axis of tokens; where keys grow, those that one could not see yet have 0."""
    if growing:
        keys = sum(piece.shape[token] for piece in pieces)  # and no key is padding
        pieces = [F.pad(piece, (0, max(0, keys - piece.shape[-1])))[..., :keys] for piece in pieces]
    return torch.cat(pieces, dim=token)


def padded(rows: list[Tensor], value: float) -> Tensor:
    """Tensors of different lengths as one, filled up at the ends."""
    sizes = [max(lengths) for lengths in zip(*(row.shape for row in rows), strict=True)]

    def filled(row: Tensor) -> Tensor:
        missing = [size - length for size, length in zip(sizes, row.shape, strict=True)]
        return F.pad(row, [each for size in missing[::-1] for each in (0, size)], value=value)

    return torch.stack([filled(row) for row in rows])


@contextmanager
def record(
    model: Any,
    keep: Names | None = None,
    layers: Numbers | None = None,
    heads: Numbers | None = None,
    gigabytes: float = MOST,
) -> Iterator[Trace]:
    """Keep what passes the points of a model, or of a run's model, while something is done with it.

    `keep` names points, which `gf.points(model)` lists, or patterns: "weights", "decoder.*.cross", ["logits", "after"].
    `layers` and `heads` are numbers from 0; what is in no layer or has no heads is kept in any case.
    """
    model = model_of(model)
    with session_of(model) as session:
        if session.keep is not None:
            raise GlassformerError("this model is being recorded already: use one record() at a time")
        recording = Recording(session, chosen(session, keep, layers, heads), numbers(heads, "head"), gigabytes)
        session.kept, session.keep, session.starting = frozenset(recording.entries), recording.keep, recording.begin
        session.attach()
        try:
            yield Trace(recording)
            for decoding in recording.decodings():
                recording.forget(decoding)
        finally:
            session.kept, session.keep, session.starting = frozenset(), None, None


def chosen(session: Session, keep: Names | None, layers: Numbers | None, heads: Numbers | None) -> list[str]:
    """The names of the points to keep; tokens are kept in any case."""
    points = session.points
    named = set(points if keep is None else find_all(keep, points))
    wanted, some = numbers(layers, "layer"), numbers(heads, "head")
    present = {point.layer for point in points.values()} - {None}
    for layer in wanted or ():
        if layer not in present:
            raise InputError(f"there is no layer {layer}: {_range('layer', len(present))}")
    check_heads(some, [points[name] for name in named])
    return [
        name
        for name, point in points.items()
        if (name in named and (wanted is None or point.layer in {None, *wanted})) or name.endswith("tokens")
    ]


def check_heads(heads: list[int] | None, points: list[Point]) -> None:
    """Refuse heads that none of the points has."""
    count = max((point.axes.get("head") or 0 for point in points), default=0)
    if heads is not None and max(heads) >= count:
        raise InputError(f"there is no head {max(heads)}: {_range('head', count)}")


def _range(what: str, count: int) -> str:
    """What there is, in words."""
    if count < 2:
        return f"there is {f'one {what}, number 0' if count else f'no {what}'}"
    return f"there are {count} {what}s, 0 to {count - 1}"
