"""Converters: one file for each family that `transformers` has too, between our names and theirs.

Every converter in a module of this package counts: a family's file needs no entry in a list.
"""

from importlib import import_module
from pkgutil import iter_modules

from glassformer.interop.converter import Converter
from glassformer.models import Blueprint

_modules = [import_module(f"{__name__}.{each.name}") for each in iter_modules(__path__)]
CONVERTERS = [value for module in _modules for value in vars(module).values() if isinstance(value, Converter)]
ARCHITECTURES = {architecture: converter for converter in CONVERTERS for architecture in converter.architectures}


def converter_of(made: Blueprint) -> Converter | None:
    """The converter of a model's family; None: `transformers` has no such family."""
    return next((each for each in CONVERTERS if each.family.__name__ == made.family), None)
