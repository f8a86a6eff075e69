"""Linears: finding the linear parts of a finished model by name, and putting others in their places."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from torch import nn

from glassformer.parts.embeddings import TiedHead

Model = TypeVar("Model", bound=nn.Module)
LinearPart = nn.Linear | TiedHead


def linears(model: nn.Module) -> dict[str, LinearPart]:
    """The linear parts of a model by their dotted names; one that stands in two places has two."""
    parts = model.named_modules(remove_duplicate=False)
    return {name: part for name, part in parts if isinstance(part, LinearPart)}


def swap_linears(model: Model, make: Callable[[LinearPart], nn.Module | None]) -> Model:
    """The model with its linear parts and tied heads replaced by what is made of them; None: it stays."""
    places = [(module, name, part) for module in model.modules() for name, part in module._modules.items()]
    made: dict[nn.Module | None, nn.Module | None] = {}  # a part that stands in two places stays one part
    for part in (*(part for _, _, part in places), model):
        if isinstance(part, LinearPart) and part not in made:
            made[part] = make(part)
    for module, name, part in places:
        if (new := made.get(part)) is not None:
            setattr(module, name, new)
    return made.get(model) or model  # type: ignore[return-value]
