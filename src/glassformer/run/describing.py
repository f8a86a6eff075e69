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
    Head,
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
from glassformer.parts.lora import lora_parts
from glassformer.pretrained.adapter import made_of, untied

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


def described(model: nn.Module) -> dict[str, Any]:
    """What a model was made from, in words and numbers that JSON can hold; with adapters, as it is when merged."""
    made, names = _merged(model), {id(part): name for name, part in PARTS.items()}
    arguments = {}
    for key, value in made.arguments.items():
        if not isinstance(value, int | float | str | None) and id(value) not in names:
            raise ConfigurationError(f"the model's {key}, {value!r}, has no name that a run folder could hold")
        arguments[key] = {"part": names[id(value)]} if id(value) in names else value
    return {"family": made.family, "arguments": arguments}


def _merged(model: nn.Module) -> Made:
    """What a model was made from; a tied head with an adapter in use will be one of its own."""
    made = made_of(model)
    if not any(part.kind is Head and part.using is not None for part in lora_parts(model).values()):
        return made
    if "tie_output" not in made.arguments:
        raise ConfigurationError(
            f"the head of a {made.family} is always its embedding: it can have no adapter; leave it out of tune.targets"
        )
    return untied(made)


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
