"""Traces made by hand, and a run that reads numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from glassformer.looking.patching import Forced
from glassformer.looking.trace import Description, Stored, Trace
from looking.families import FAMILIES

WEIGHTS = {"sentence": None, "head": None, "token": None, "key": None}
VECTORS = {"sentence": None, "token": None, "feature": None}


def made(
    tensors: Mapping[str, Any],
    tokens: Mapping[str, Sequence[str]] | None = None,
    words: Mapping[str, Any] | None = None,
    heads: list[int] | None = None,
) -> Trace:
    """A trace of one sentence: weights (H, T, S), vectors (T, D), tokens (T)."""
    found = {name: torch.as_tensor(each)[None] for name, each in tensors.items()}
    axes: dict[str, Any] = {
        name: {"sentence": None, "token": None} if name.endswith("tokens") else WEIGHTS if x.dim() == 4 else VECTORS
        for name, x in found.items()
    }
    texts = {stack: [list(each)] for stack, each in (tokens or {}).items()}
    groups = {stack: [each] for stack, each in (words or {}).items()}
    some = {name: heads if axes[name] is WEIGHTS else None for name in found}
    kept = Stored({name: [x.float() if x.is_floating_point() else x] for name, x in found.items()}, axes, some)
    return Trace(kept, Description(tokens=texts, words=groups))


class Reader:
    """A run that reads numbers, and writes some if it is given two texts."""

    special = SimpleNamespace(end=2)

    def __init__(self, name: str, inputs: tuple[Tensor, ...] | None = None) -> None:
        self.model: Any = FAMILIES[name].model()
        self.given = FAMILIES[name].inputs if inputs is None else inputs

    def forced(self, text: Any, written: Sequence[int] | None = None) -> Forced:
        """The first sentence of the family's inputs, whatever the text."""
        stacks = [stack for stack in ("encoder", "decoder") if hasattr(self.model, stack)]
        inputs = tuple(each[:1] for each in self.given)
        counts = {stack: inputs[number].shape[1] for number, stack in enumerate(stacks)}
        if inputs[0].dim() == 4:
            counts["encoder"] = 1 + (inputs[0].shape[-1] // 4) ** 2
        tokens = {stack: [[f"{stack[0]}{at}" for at in range(counts[stack])]] for stack in stacks}
        wrote = inputs[1][0, 1:].tolist() if len(stacks) > 1 else None
        return Forced(inputs, tokens, {}, wrote)
