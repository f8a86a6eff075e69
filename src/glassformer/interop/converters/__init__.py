"""Converters: one file for each family that `transformers` has too, between our names and theirs.

Every converter in a module of this package counts: a family's file needs no entry in a list.
"""

from importlib import import_module
from pkgutil import iter_modules

from torch import nn

from glassformer.interop.converter import Converter, Equivalent
from glassformer.models import Blueprint
from glassformer.models.family import blueprint_of

_modules = [import_module(f"{__name__}.{each.name}") for each in iter_modules(__path__)]
_values = [value for module in _modules for value in vars(module).values()]
CONVERTERS = [value for value in _values if isinstance(value, Converter)]
EQUIVALENTS = {value.family.__name__: value for value in _values if isinstance(value, Equivalent)}
ARCHITECTURES = {architecture: converter for converter in CONVERTERS for architecture in converter.architectures}


def converter_of(made: Blueprint) -> Converter | None:
    """The converter of a model's family; None: `transformers` has no such family."""
    return next((each for each in CONVERTERS if each.family.__name__ == made.family), None)


def convertible(model: nn.Module) -> nn.Module:
    """The model, or the one of another family that computes the same, where `transformers` has only that."""
    equivalent = EQUIVALENTS.get(blueprint_of(model).family)
    return model if equivalent is None else equivalent.model(model)
