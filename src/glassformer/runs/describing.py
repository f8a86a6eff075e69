"""From a model to words that it can be built from again."""

from __future__ import annotations

from dataclasses import dataclass
from inspect import Parameter
from typing import Any

from pydantic import TypeAdapter, ValidationError
from torch import nn

from glassformer.errors import ConfigurationError
from glassformer.models.family import Blueprint, blueprint_of, untied
from glassformer.parts import Head
from glassformer.parts.lora import lora_parts
from glassformer.registry import FAMILIES
from glassformer.writing import sentence


@dataclass(frozen=True)
class Description:
    """What a model was made from, in words and numbers that JSON can hold."""

    family: str
    arguments: dict[str, Any]


def described(model: nn.Module) -> Description:
    """What a model was made from; with adapters, as it is when merged."""
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
    return Description(blueprint.family, arguments)


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


def rebuilt(description: Description) -> nn.Module:
    """The model of a description, with new weights; one that its family would not take is refused."""
    family = FAMILIES[description.family]
    arguments = {}
    for key, value in description.arguments.items():
        if key not in family.parameters:
            raise ConfigurationError(f"{description.family} has no argument {key}")
        parameter = family.parameters[key]
        if parameter.named is not None and isinstance(value, str):
            arguments[key] = parameter.named.part(value)
        elif parameter.named is not None and (value is not None or parameter.default is not None):
            raise ConfigurationError(f"{key} is {value!r}: expected one of {', '.join(parameter.named.names())}")
        else:
            arguments[key] = value if parameter.named is not None else _checked(key, value, parameter.annotation)
    needed = {key for key, each in family.parameters.items() if each.default is Parameter.empty}
    if absent := sorted(needed - arguments.keys()):
        raise ConfigurationError(f"{description.family} needs {absent[0]}")
    model: nn.Module = family(**arguments)
    return model


def _checked(key: str, value: Any, annotation: Any) -> Any:
    try:
        return TypeAdapter(annotation).validate_python(value, strict=True)
    except ValidationError as error:
        raise ConfigurationError(f"{key} is {value!r}: {sentence(error)}") from None
