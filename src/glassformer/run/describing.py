"""From a model to words that it can be built from again."""

from __future__ import annotations

from typing import Any

from torch import nn

from glassformer.errors import ConfigurationError, RunError
from glassformer.models import FAMILIES, Made
from glassformer.parts import (
    GRU,
    LSTM,
    RNN,
    AdditiveScore,
    LayerNorm,
    MultiplicativeScore,
    PostNorm,
    PreNorm,
    RMSNorm,
    gelu,
    gelu_tanh,
    relu,
    silu,
)

ACTIVATIONS = {"relu": relu, "gelu": gelu, "gelu_tanh": gelu_tanh, "silu": silu}
PARTS: dict[str, Any] = {  # what a family may be given, by name
    **ACTIVATIONS,
    "PreNorm": PreNorm,
    "PostNorm": PostNorm,
    "LayerNorm": LayerNorm,
    "RMSNorm": RMSNorm,
    "Linear": nn.Linear,
    **{part.__name__: part for part in (RNN, GRU, LSTM, AdditiveScore, MultiplicativeScore)},
}


def made_of(model: nn.Module) -> Made:
    """The family and the arguments that a model was made from."""
    made = getattr(model, "made", None)
    if not isinstance(made, Made):
        raise ConfigurationError("this model does not say what it was made from: build it with a family's function")
    return made


def described(model: nn.Module) -> dict[str, Any]:
    """What a model was made from, in words and numbers that JSON can hold."""
    made, names = made_of(model), {id(part): name for name, part in PARTS.items()}
    arguments = {}
    for key, value in made.arguments.items():
        if not isinstance(value, int | float | str | None) and id(value) not in names:
            raise ConfigurationError(f"the model's {key}, {value!r}, has no name that a run folder could hold")
        arguments[key] = {"part": names[id(value)]} if id(value) in names else value
    return {"family": made.family, "arguments": arguments}


def rebuilt(description: dict[str, Any]) -> nn.Module:
    """The model of a description, with fresh weights."""
    family = FAMILIES.get(description["family"])
    if family is None:
        raise RunError(f"there is no family {description['family']!r}")
    arguments = {
        key: PARTS[value["part"]] if isinstance(value, dict) else value
        for key, value in description["arguments"].items()
    }
    return family(**arguments)
