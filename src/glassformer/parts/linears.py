"""Linears: finding the linear parts of a finished model by name, and putting others in their places.

D inputs, F outputs
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from torch import Tensor, nn

from glassformer.parts.embeddings import TiedHead

Model = TypeVar("Model", bound=nn.Module)
LinearPart = nn.Linear | TiedHead


def matrix(part: LinearPart) -> tuple[Tensor, Tensor | None]:
    """The weight (F, D) of a linear part, which for a tied head is the embedding's, and its bias (F) if it has one."""
    return (part.embedding.weight if isinstance(part, TiedHead) else part.weight), part.bias


def linears(model: nn.Module) -> dict[str, LinearPart]:
    """The linear parts of a model by their dotted names; one that stands in two places has two."""
    parts = model.named_modules(remove_duplicate=False)
    return {name: part for name, part in parts if isinstance(part, LinearPart)}


def swap_linears(model: Model, make: Callable[[LinearPart], nn.Module | None]) -> Model:
    """The model with its linear parts and tied heads replaced by what is made of them; None: it stays."""
    made: dict[nn.Module, nn.Module | None] = {}  # a part that stands in two places stays one part

    def instead(part: nn.Module) -> nn.Module | None:
        if part not in made:
            made[part] = make(part) if isinstance(part, LinearPart) else None
        return made[part]

    for module in list(model.modules()):
        for name, part in list(module._modules.items()):
            if part is not None and (new := instead(part)) is not None:
                setattr(module, name, new)
    return instead(model) or model  # type: ignore[return-value]
