"""Stages: a model from left to right, as a reader walks through it: one lane for each stack, one stage after another.

    for lane in stages(model):
        for stage in lane.stages: stage.name, stage.title, stage.point, stage.parts

A stage stands for the residual stream (or the states) at one point; its parts can be unfolded further.

T tokens, D width, N bins
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.errors import InputError
from glassformer.looking.analyses.residual import branches
from glassformer.looking.points import model_of, tells_numbers
from glassformer.parts.attention import MultiHeadAttention
from glassformer.parts.patches import FilmEmbedding, PatchEmbedding
from glassformer.parts.positions import NoPositions
from glassformer.parts.recurrent_stacks import RecurrentDecoder, RecurrentEncoder

TITLES = {"self": "self-attention", "cross": "cross-attention", "ff": "feed-forward"}


@dataclass(frozen=True)
class Part:
    """What can be unfolded: a part of a block, a recurrent layer, an end of the model."""

    name: str  # "decoder.0.cross"
    title: str
    kind: str  # "attention", "feed-forward", "embedding", "norm", "cells", "alignment", "head", "numbers"
    heads: int = 0


@dataclass(frozen=True)
class Stage:
    """One column of a lane: where its values are read, and what it unfolds to."""

    name: str
    title: str
    point: str
    parts: list[Part]


@dataclass(frozen=True)
class Lane:
    """A stack from left to right."""

    stack: str
    title: str
    stages: list[Stage] = field(default_factory=list)


def stages(model: Any) -> list[Lane]:
    """The lanes of a model: the encoder's, the decoder's, or the one there is; the last one ends with the head."""
    inside: Any = model_of(model)
    names = [name for name in ("encoder", "decoder") if hasattr(inside, name)]
    if not names:
        raise InputError("a model with an encoder or a decoder is expected, not a part of one")
    lanes = [_lane(name, getattr(inside, name), alone=len(names) == 1) for name in names]
    if not isinstance(inside.head, nn.Identity):
        head = Part("logits", *(("numbers", "numbers") if tells_numbers(inside) else ("scores, then softmax", "head")))
        writes = hasattr(getattr(getattr(inside, "decoder", None), "embedding", None), "vocabulary")
        title = "next token" if writes else "answer"
        lanes[-1].stages.append(Stage("logits", title, "logits", [head]))
    return lanes


def _lane(name: str, stack: Any, alone: bool) -> Lane:
    what = "what is read" if name == "encoder" or alone else "what is written"
    lane = Lane(name, f"{name}: {what}")
    image, order = isinstance(stack.embedding, PatchEmbedding | FilmEmbedding), stack.embedding.positions
    placed = not isinstance(order, NoPositions)
    title = f"{'patches' if image else 'embedding'}{' + position' if placed else ''}"
    begin = f"{name}.0.before"
    lane.stages.append(Stage(f"{name}.embedding", title, begin, [Part(f"{name}.embedding", title, "embedding")]))
    if isinstance(stack, RecurrentEncoder | RecurrentDecoder):
        lane.stages.extend(_layers(name, stack))
        return lane
    for number, block in enumerate(stack.blocks):
        parts = [_part(f"{name}.{number}.{part}", part, branch.part) for part, branch in branches(block)]
        lane.stages.append(Stage(f"{name}.{number}", f"block {number}", f"{name}.{number}.after", parts))
    if not isinstance(stack.norm, nn.Identity):
        output = f"{name}.output"
        lane.stages.append(Stage(output, "norm", output, [Part(output, "final norm", "norm")]))
    return lane


def _part(name: str, local: str, part: nn.Module) -> Part:
    if isinstance(part, MultiHeadAttention):
        return Part(name, TITLES[local], "attention", part.heads)
    return Part(name, TITLES[local], "feed-forward")


def _layers(name: str, stack: Any) -> list[Stage]:
    """The layers of a recurrent stack, and the attention above them."""
    kind, found = stack.layers.cell.__name__, list[Stage]()
    ways = [("", ""), (".backward", ", backward")][: stack.layers.directions]
    for number in range(stack.layers.fused.num_layers):
        parts = [Part(f"{name}.{number}{way}", f"{kind}{said}", "cells") for way, said in ways]
        found.append(Stage(f"{name}.{number}", f"{kind} {number}", f"{name}.{number}.state", parts))
    if getattr(stack, "attention", None) is not None:
        part = Part(f"{name}.cross", "attention to the source", "alignment", 1)
        found.append(Stage(f"{name}.cross", "attention", f"{name}.cross.output", [part]))
    return found


def strips(x: Tensor, bins: int) -> Tensor:
    """Vectors (T, D) in at most so many numbers each, (T, N): of neighbours, the one that is largest in size."""
    width = x.shape[-1]
    if width <= bins:
        return x
    edges = [round(number * width / bins) for number in range(bins + 1)]
    parts = [x[:, first:last] for first, last in pairwise(edges)]
    return torch.stack([part.gather(1, part.abs().argmax(dim=1, keepdim=True))[:, 0] for part in parts], dim=1)
