"""Families: functions that assemble parts into models. What a family takes is what `[model]` of a recipe may say.

A model remembers its blueprint: its family and the arguments that it was made with. Whoever has to describe a model to
others (a run folder, another library's checkpoint) reads it there instead of guessing from its weights.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ParamSpec, TypeVar, overload

from torch import nn

from glassformer.errors import ConfigurationError
from glassformer.models.descriptions import DESCRIPTIONS
from glassformer.parts.embeddings import Embedding, Head
from glassformer.parts.named import Named
from glassformer.parts.schemes import learned, rotary
from glassformer.registry import FAMILIES

Arguments = ParamSpec("Arguments")
Model = TypeVar("Model", bound=nn.Module)
Only = Mapping[str, tuple[str, ...]]

# Arguments that the data, the task or the program decide: they are no keys of a recipe.
GIVEN = frozenset(
    {
        *("vocabulary", "target_vocabulary", "length", "answer", "classes", "image", "frames", "colours", "columns"),
        "numbers",
        *("linear", "pooler", "skip"),
    }
)


@dataclass
class Blueprint:
    """What a model was made from."""

    family: str
    arguments: dict[str, Any]
    notes: dict[str, Any] = field(default_factory=dict)  # what its checkpoint said beyond that


@dataclass(frozen=True)
class Argument:
    """An argument of a family."""

    name: str
    annotation: Any  # its type, without metadata
    default: Any  # `inspect.Parameter.empty` where it must be given
    named: Named | None  # the names of the parts that it takes, where it takes parts
    description: str


@overload
def family(function: Callable[Arguments, Model], /) -> Callable[Arguments, Model]:  # noqa: D418
    """Plain: `@family`."""


@overload
def family(  # noqa: D418
    *, answers: Sequence[str] = (), only: Only | None = None
) -> Callable[[Callable[Arguments, Model]], Callable[Arguments, Model]]:
    """With what its models answer: `@family(answers=["next"])`."""


def family(
    function: Callable[..., nn.Module] | None = None, /, *, answers: Sequence[str] = (), only: Only | None = None
) -> Any:
    """Register a function as a family, and let the models that it assembles remember it, as `model.blueprint`.

    `answers` says what its models answer with ("target", "next", "classes", …): tasks find their families by it. A
    family with an argument `answer` has those of its type. `only` names arguments that have an effect for some answers
    alone: `@family(only={"truncate": ("next",)})`.
    """
    if function is None:
        return functools.partial(_register, answers=tuple(answers), only=only or {})
    return _register(function, (), {})


def _register(function: Callable[..., nn.Module], answers: tuple[str, ...], only: Only) -> Callable[..., nn.Module]:
    signature, parameters = inspect.signature(function), family_parameters(function)
    own = typing.get_args(parameters["answer"].annotation) if "answer" in parameters else answers

    @functools.wraps(function)
    def assemble(*args: Any, **kwargs: Any) -> nn.Module:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        model = function(*bound.args, **bound.kwargs)
        model.blueprint = Blueprint(function.__name__, dict(bound.arguments))  # type: ignore[assignment]
        return model

    assemble.answers, assemble.only, assemble.parameters = own, only, parameters  # type: ignore[attr-defined]
    assemble.keys = functools.partial(_keys, parameters, only)  # type: ignore[attr-defined]
    FAMILIES.register(function.__name__, assemble)
    return assemble


def variant(name: str, base: Callable[..., Model], documentation: str, **defaults: Any) -> Callable[..., Model]:
    """Register a family that is another one with other defaults.

    `roberta = variant("roberta", bert, "The encoder of …", vocabulary=50_265, segments=1)`
    """
    assembles: Callable[..., Model] = inspect.unwrap(base)
    signature = inspect.signature(assembles)
    if unknown := defaults.keys() - signature.parameters.keys():
        raise ConfigurationError(f"{base.__name__} has no argument {', '.join(sorted(unknown))}")
    changed = [each.replace(default=defaults.get(key, each.default)) for key, each in signature.parameters.items()]

    def assemble(*args: Any, **kwargs: Any) -> Model:
        return assembles(*args, **kwargs)  # all arguments are bound: the base's own defaults play no part

    assemble.__signature__ = signature.replace(parameters=changed)  # type: ignore[attr-defined]
    assemble.__name__ = assemble.__qualname__ = name
    assemble.__module__, assemble.__doc__ = assembles.__module__, documentation
    assemble.__annotations__ = typing.get_type_hints(assembles, include_extras=True)
    return _register(assemble, base.answers, base.only)  # type: ignore[attr-defined, return-value]


def _keys(parameters: Mapping[str, Argument], only: Only, answer: str) -> list[str]:
    """The arguments that are keys of a recipe whose model is asked for this kind of answer."""
    return [name for name in parameters if name not in GIVEN and answer in only.get(name, (answer,))]


def family_parameters(function: Callable[..., nn.Module]) -> dict[str, Argument]:
    """The arguments of a family by name, in the order of its signature."""
    hints, types = typing.get_type_hints(function, include_extras=True), typing.get_type_hints(function)
    arguments = {}
    for name, parameter in inspect.signature(function).parameters.items():
        metadata = _metadata(hints.get(name))
        named = next((each for each in metadata if isinstance(each, Named)), None)
        description = next((each for each in metadata if isinstance(each, str)), DESCRIPTIONS.get(name, ""))
        arguments[name] = Argument(name, types.get(name, Any), parameter.default, named, description)
    return arguments


def _metadata(hint: Any) -> list[Any]:
    """What `Annotated` says of a type or of a member of a union."""
    inner = [each for member in typing.get_args(hint) for each in _metadata(member)]
    return [*getattr(hint, "__metadata__", ()), *inner]


def blueprint_of(model: nn.Module) -> Blueprint:
    """What a model was made from; a head that was tied, and has become one of its own, counts as one of its own."""
    blueprint = getattr(model, "blueprint", None)
    if not isinstance(blueprint, Blueprint):
        raise ConfigurationError(f"a {type(model).__name__} that no family function has made cannot be described")
    tables = {id(part.weight) for part in model.modules() if isinstance(part, Embedding)}
    own = any(isinstance(part, Head) and id(part.weight) not in tables for part in model.modules())
    return untied(blueprint) if own else blueprint


def longest(blueprint: Blueprint) -> int | None:
    """How many tokens a model was made to read, where its positions are learned or rotary; None: any number."""
    positions, length = blueprint.arguments.get("positions", learned), blueprint.arguments.get("length")
    return length if positions in (learned, rotary) else None


def untied(blueprint: Blueprint) -> Blueprint:
    """The same with a head of its own."""
    if not blueprint.arguments.get("tie_output"):
        return blueprint
    changes: dict[str, Any] = {"tie_output": False}
    if blueprint.arguments.get("scaled", False) is None:  # T5's default: what a tied head reads is scaled
        changes["scaled"] = True
    return replace(blueprint, arguments={**blueprint.arguments, **changes})
