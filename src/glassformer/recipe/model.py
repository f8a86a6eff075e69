"""The section [model]: exactly what a family's function takes, with the family's own defaults; or a checkpoint."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import Field, create_model

from glassformer.errors import ConfigurationError
from glassformer.recipe.values import Count, Fraction, Number, Section, Switch
from glassformer.registry import FAMILIES, TASKS


class Pretrained(Section):
    """A model that is loaded; the checkpoint decides everything but the dropout."""

    pretrained: str = Field(description="a checkpoint to start from: a folder, a run, package:NAME or a hub name")
    dropout: Fraction | None = Field(None, description="dropout in training; missing: the checkpoint's own")


class Fresh(Section):
    """A model with new weights. Its keys are the arguments of the family's function."""

    named: ClassVar[dict[str, Any]] = {}  # arguments whose values are parts: their names
    family: str

    def arguments(self) -> dict[str, Any]:
        """The values of the family's arguments, names replaced by the parts they stand for."""
        values = {key: getattr(self, key) for key in type(self).model_fields if key not in FreshReader.model_fields}
        chosen = {key for key, value in values.items() if key in self.named and value is not None}
        return {key: self.named[key].part(value) if key in chosen else value for key, value in values.items()}

    @classmethod
    def refusal(cls, key: str, value: Any) -> str | None:
        """Why a key does not take the name of a part that it has elsewhere, or had; None: nothing is known of it."""
        named = cls.named.get(key)
        if named is None or not isinstance(value, str) or value not in named.refused:
            return None
        others = [name for name, each in _named_everywhere(key).items() if value in each.parts]
        taking = f"; {', '.join(others)} can have it" if others else ""
        return f"{named.refused[value]}{taking}"


class FreshReader(Fresh):
    """The same of a model that reads tokens, whose embedding may start with word vectors."""

    embeddings: str | None = Field(
        None,
        description="vectors that the input embedding starts with: a file in word2vec's text format, one-hot or tf-idf",
    )
    embeddings_learn: Switch = Field(True, description="false: these vectors are not trained (nor a head tied to them)")


def families_for(answer: str) -> list[str]:
    """The families whose models can answer so."""
    return [name for name, function in FAMILIES.items() if answer in function.answers]


@cache
def section_of(family: str, answer: str) -> type[Fresh]:
    """The keys of [model] for a family whose model is asked for some kind of answer."""
    function = FAMILIES[family]
    if answer not in function.answers:
        raise ConfigurationError(
            f"model.family is {family!r}: for this task it is one of {', '.join(families_for(answer))}"
        )
    fields: dict[str, Any] = {"family": (Literal[family], Field(family, description="the family"))}
    named = {}
    for key in function.keys(answer):
        parameter = function.parameters[key]
        if parameter.named is not None:
            named[key] = parameter.named
            default: Any = parameter.named.name(parameter.default)
            kind: Any = Literal[tuple(parameter.named.names())]
            kind = kind if default is not None else kind | None
        else:
            kind, default = _strict(key, parameter.annotation), parameter.default
        fields[key] = (kind, Field(default, description=parameter.description))
    reads_tokens = "vocabulary" in function.parameters and "image" not in function.parameters
    base: type[Fresh] = FreshReader if reads_tokens else Fresh
    made = create_model(f"{family}_model", __base__=base, __doc__=(function.__doc__ or "").split("\n")[0], **fields)
    made.named = named
    return made


def _strict(key: str, annotation: Any) -> Any:
    """A type of Python's as recipes read it: strict, and within bounds."""
    options = get_args(annotation)
    if type(None) in options:
        (inner,) = [each for each in options if each is not type(None)]
        return _strict(key, inner) | None
    if annotation is float:
        return Fraction if key.endswith("dropout") else Annotated[Number, Field(gt=0)]
    return {bool: Switch, int: Count}.get(annotation, annotation)


def _named_everywhere(key: str) -> dict[str, Any]:
    """The names that each family has for the parts of an argument."""
    found = {name: each.parameters[key].named for name, each in FAMILIES.items() if key in each.parameters}
    return {name: named for name, named in found.items() if named is not None}


def families_with(key: str) -> list[str]:
    """The families that have a key."""
    wanted = {task.answer for _, task in TASKS.items()}
    return [name for name, each in FAMILIES.items() if any(key in each.keys(one) for one in wanted & {*each.answers})]
