"""Unfolding: the numbers inside one part of a model, for one head and one token where there are many.

    unfold(model, trace, "decoder.0.cross", token=3, head=1).tables["scores"]   # (T, S)

Which numbers belong to which picture is said here once; how each of them was made, `sum_of` says.

T tokens, S keys, D width, H heads, K head width, F hidden width, W width of a state, k best
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from glassformer.errors import InputError
from glassformer.looking.analyses.residual import stream_before
from glassformer.looking.analyses.tables import labels
from glassformer.looking.points import model_of, stack_of
from glassformer.looking.stages import Part, stages
from glassformer.looking.sums.ends import head_input, split_head
from glassformer.looking.sums.place import Place
from glassformer.looking.sums.recurrent import Cell
from glassformer.looking.trace import Trace
from glassformer.parts.masks import causal
from glassformer.parts.norms import PreNorm
from glassformer.parts.positions import NoPositions
from glassformer.parts.values import NumberHead

BEST = 12  # words of the vocabulary that are shown with their scores


@dataclass(frozen=True)
class Table:
    """Numbers of a point, or of what a part reads, with what its rows and columns are."""

    point: str  # "": they have passed no point of their own
    values: Tensor  # (T, K), (T, S) or (1, D)
    rows: list[str]
    columns: str  # "feature", "key" or "vocabulary"
    head: int | None = None  # the head it is of; None: it has none
    first: int = 0  # the token of the first row
    places: list[int] | None = None  # which columns of the point these are; None: all


@dataclass(frozen=True)
class Unfolded:
    """What is inside a part: its tables by name, the tokens that it reads, and facts for the formula."""

    part: Part
    tables: dict[str, Table] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)


def unfold(model: Any, trace: Trace, name: str, token: int = 0, head: int = 0, sentence: int = 0) -> Unfolded:
    """The numbers inside a part: of all tokens where a head has few, of one token where vectors are wide."""
    inside = model_of(model)
    parts = {part.name: part for lane in stages(inside) for stage in lane.stages for part in stage.parts}
    if name not in parts:
        raise InputError(f'there is no part "{name}": there are {", ".join(parts)}')
    part = parts[name]
    if part.heads and not 0 <= head < part.heads:
        raise InputError(f"there is no head {head}: {name} has {part.heads}")
    opened = _Opened(inside, trace, part, token, head, sentence)
    makers: dict[str, Callable[[], None]] = {
        "attention": opened.attention,
        "alignment": opened.alignment,
        "feed-forward": opened.feed_forward,
        "embedding": opened.embedding,
        "norm": opened.norm,
        "cells": opened.cells,
        "head": opened.scores,
        "numbers": opened.numbers,
    }
    makers[part.kind]()
    return opened.found


class _Opened:
    """One part, and what is collected of it."""

    def __init__(self, model: Any, trace: Trace, part: Part, token: int, head: int, sentence: int) -> None:
        self.model, self.trace, self.part = model, trace, part
        self.token, self.head, self.sentence = token, head, sentence
        self.found = Unfolded(part)

    def place(self, point: str) -> Place:
        return Place(self.model, self.trace, point, self.token, 0, self.head, self.sentence)

    def add(self, name: str, point: str, head: int | None = None) -> None:
        """All tokens of a point, in one head."""
        place, axes = self.place(point), self.trace.kept.axes_of(point)
        axis = "key" if list(axes)[-2] == "key" else "token"
        columns = "key" if "key" in axes and axis == "token" else "feature"
        values = place.table(point, head)
        read = self.trace.tokens(stack_of(point)) if axis == "token" else []  # what is read there, not what is written
        rows = read[self.sentence] if read else labels(self.trace, point, axis, self.sentence)
        self.found.tables[name] = Table(point, values, rows, columns, head if "head" in axes else None)

    def vector(self, name: str, point: str, values: Tensor | None = None, columns: str = "feature") -> None:
        """One token of a point."""
        row = self.place(point).vector(point) if values is None else values
        self.found.tables[name] = Table(point, row[None], [""], columns, first=self.token)

    def stream(self) -> None:
        """What a part of a block reads, gives and leaves behind, at one token."""
        name = self.part.name
        place, before = self.place(f"{name}.output"), stream_before(self.trace, f"{name}.output")
        after = f"{name.rpartition('.')[0]}.after" if name.endswith(".ff") else f"{name}.after"
        self.vector("before", before)
        self.vector("input", f"{name}.input", place.read(name))
        self.vector("output", f"{name}.output")
        self.vector("after", after)
        branch = place.branch
        self.found.facts.update({"pre": isinstance(branch, PreNorm), "norm": type(branch.norm).__name__})

    def attention(self) -> None:
        """Q, K, V, scores, weights and what is taken in, in one head."""
        name, attention = self.part.name, self.place(f"{self.part.name}.output").part
        shared = self.head // (attention.heads // attention.key_value_heads)
        for local in ("queries", "scores", "weights", "heads"):
            self.add(local, f"{name}.{local}", self.head)
        for local in ("keys", "values"):
            self.add(local, f"{name}.{local}", shared)
        rows, columns = self.found.tables["scores"].values.shape
        self.found.keys.extend(labels(self.trace, f"{name}.weights", "key", self.sentence))
        bias = None
        if attention.positions is not None:
            with torch.no_grad():
                here = [torch.arange(n, device=next(attention.parameters()).device)[None] for n in (rows, columns)]
                bias = attention.positions.bias(*here)
        self.found.facts.update(
            {
                "scale": attention.scale,
                "width": attention.head_width,
                "shared": shared if attention.key_value_heads != attention.heads else None,
                "rotated": type(attention.positions).__name__ == "Rotary",
                "bias": None if bias is None else type(attention.positions).__name__,
                "allowed": allowed(self.model, name, rows, columns),
            }
        )
        self.each_head(attention.heads)
        self.stream()

    def each_head(self, count: int) -> None:
        """What each head takes in at one token, (H, K)."""
        point = f"{self.part.name}.heads"
        place = self.place(point)
        rows = torch.stack([place.vector(point, head=head) for head in range(count)])
        self.found.tables["joined"] = Table(point, rows, [f"head {n}" for n in range(count)], "feature")

    def alignment(self) -> None:
        """The attention of a recurrent decoder."""
        name = self.part.name
        self.found.keys.extend(labels(self.trace, f"{name}.weights", "key", self.sentence))
        for local in ("scores", "weights"):
            self.add(local, f"{name}.{local}", 0)
        for local in ("heads", "output"):
            self.vector(local, f"{name}.{local}")
        states = f"decoder.{self.model.decoder.layers.fused.num_layers - 1}.state"
        self.vector("queries", states)
        rows, columns = self.found.tables["scores"].values.shape
        self.found.facts.update({"allowed": torch.ones(rows, columns, dtype=torch.bool)})
        self.found.facts["score"] = type(self.place(f"{name}.output").part.score).__name__

    def feed_forward(self) -> None:
        """The activations of one token."""
        part = self.place(f"{self.part.name}.output").part
        self.vector("hidden", f"{self.part.name}.hidden")
        self.stream()
        self.found.facts["gated"] = hasattr(part, "gate")

    def embedding(self) -> None:
        """The embedding of one token, its position, and what enters the first block."""
        stack = self.part.name.partition(".")[0]
        order = getattr(self.model, stack).embedding.positions
        self.vector("embedding", f"{stack}.embedding")
        if not isinstance(order, NoPositions):
            self.vector("positions", f"{stack}.positions")
            self.found.facts["positions"] = "Learned" if isinstance(order, Tensor) else type(order).__name__
        self.vector("before", f"{stack}.0.before")
        self.found.facts["scale"] = float(getattr(getattr(self.model, stack).embedding, "scale", 1.0))
        self.found.facts["reads"] = next(
            (each for each in ("patches", "values") if f"{stack}.{each}" in self.trace.names), "tokens"
        )

    def norm(self) -> None:
        """What leaves a stack."""
        stack = self.part.name.partition(".")[0]
        last = f"{stack}.{len(getattr(self.model, stack).blocks) - 1}.after"
        self.vector("before", last)
        self.vector("output", f"{stack}.output")

    def cells(self) -> None:
        """Gates and states of a recurrent layer: over all tokens, and what goes in at one."""
        name, points = self.part.name, [n for n in self.trace.names if n.startswith(f"{self.part.name}.")]
        own = [n for n in points if n.startswith(f"{name}.gates.") or n in (f"{name}.cell", f"{name}.state")]
        for point in own:
            self.add(point.removeprefix(f"{name}.").removeprefix("gates."), point)
        cell = Cell(self.place(f"{name}.state"))
        below = (
            f"{name.partition('.')[0]}.0.before" if cell.layer == 0 else f"{cell.place.stack}.{cell.layer - 1}.state"
        )
        self.vector("read", below if cell.layers.directions == 1 or cell.layer == 0 else "", cell.read())
        self.vector("last", "", cell.before("state"))
        self.found.facts.update({"cell": cell.layers.cell.__name__, "backward": cell.backward})

    def head_input(self) -> Tensor:
        """The vector that the head reads becomes a table; the logits (V) that it makes of it."""
        place = self.place("logits")
        before, stack = split_head(self.model.head)[0], "decoder" if hasattr(self.model, "decoder") else "encoder"
        self.vector("input", "" if before else f"{stack}.output", head_input(place, before))
        return place.vector("logits")

    def numbers(self) -> None:
        """The numbers that a model answers with, and the vector that they are made of."""
        self.vector("numbers", "logits", self.head_input())

    def scores(self) -> None:
        """The likeliest words or labels of one token, and the vector that is scored."""
        logits = self.head_input()
        *_, axis = self.trace.kept.axes_of("logits")
        names = labels(self.trace, "logits", axis, self.sentence)
        best = logits.topk(min(BEST, len(logits))).indices.tolist()
        rows = [names[each] for each in best]
        tables = {"logits": logits}
        if not isinstance(self.model.head, NumberHead):
            tables["probabilities"] = logits.softmax(dim=-1)
        for name, values in tables.items():
            self.found.tables[name] = Table(name, values[best][None], rows, "vocabulary", first=self.token, places=best)
        self.found.facts["size"] = len(logits)


def allowed(model: Any, part: str, rows: int, columns: int) -> Tensor:
    """Which keys each token of an attention may attend to in a text without padding, (T, S)."""
    stack = getattr(model_of(model), part.partition(".")[0])
    everything = torch.ones(rows, columns, dtype=torch.bool)
    if not part.endswith(".self") or not part.startswith("decoder."):
        return everything
    table = (causal() & stack.mask).table(rows, columns)
    return everything if table is None else everything & table
