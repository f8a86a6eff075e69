"""From a model to words that it can be built from again."""

from __future__ import annotations

from typing import Any

from torch import nn

from glassformer.errors import ConfigurationError
from glassformer.models.family import Blueprint, blueprint_of, untied
from glassformer.parts import Head
from glassformer.parts.lora import lora_parts
from glassformer.registry import FAMILIES


def described(model: nn.Module) -> dict[str, Any]:
    """What a model was made from, in words and numbers that JSON can hold; with adapters, as it is when merged."""
    blueprint = _merged(model)
    parameters = FAMILIES[blueprint.family].parameters
    arguments = {}
    for key, value in blueprint.arguments.items():
        named = parameters[key].named
        name = None if named is None else named.name(value)
        if name is None and value is parameters[key].default:
            continue  # the family will choose it again
        if name is None and not isinstance(value, int | float | str | None):
            raise ConfigurationError(f"the model's {key}, {value!r}, has no name that a run folder could hold")
        arguments[key] = value if name is None else name
    return {"family": blueprint.family, "arguments": arguments}


def _merged(model: nn.Module) -> Blueprint:
    """What a model was made from; a tied head with an adapter in use will be one of its own."""
    blueprint = blueprint_of(model)
    if not any(part.kind is Head and part.using is not None for part in lora_parts(model).values()):
        return blueprint
    if "tie_output" not in blueprint.arguments:
        raise ConfigurationError(
            f"the head of a {blueprint.family} is always tied to its embedding and can have no adapter: "
            "leave it out of tune.targets"
        )
    return untied(blueprint)


def rebuilt(description: dict[str, Any]) -> nn.Module:
    """The model of a description, with new weights."""
    family = FAMILIES[description["family"]]
    arguments = {}
    for key, value in description["arguments"].items():
        named = family.parameters[key].named
        arguments[key] = named.part(value) if named is not None and isinstance(value, str) else value
    model: nn.Module = family(**arguments)
    return model
