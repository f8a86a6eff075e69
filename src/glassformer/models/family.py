"""A model remembers how it was made: its family and the numbers and parts it was given.

Whoever has to describe a model to others (a run folder, another library's checkpoint) reads it there instead of
guessing from its weights.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar

from torch import nn

Arguments = ParamSpec("Arguments")
Model = TypeVar("Model", bound=nn.Module)


@dataclass
class Made:
    """What a model was made from."""

    family: str
    arguments: dict[str, Any]
    notes: dict[str, Any] = field(default_factory=dict)  # what its checkpoint said beyond that


def family(function: Callable[Arguments, Model]) -> Callable[Arguments, Model]:
    """Let the models that a function assembles remember it and its arguments, as `model.made`."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def assemble(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Model:
        model = function(*args, **kwargs)
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        model.made = Made(function.__name__, dict(bound.arguments))  # type: ignore[assignment]
        return model

    return assemble
