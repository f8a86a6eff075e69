"""Adapters: what a family is called elsewhere. One table for the numbers, one for the weights, both read both ways."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from glassformer.errors import ConfigurationError, GlassformerError
from glassformer.models import Made
from glassformer.parts import Embedding, Head, gelu, gelu_tanh, relu, silu
from glassformer.pretrained.names import Table

Config = dict[str, Any]
ACTIVATIONS = {
    "relu": relu,
    "gelu": gelu,
    "gelu_new": gelu_tanh,
    "gelu_pytorch_tanh": gelu_tanh,
    "silu": silu,
    "swish": silu,
}


@dataclass(frozen=True)
class Number:
    """A key of their config, the argument of ours, and what they mean where they do not say."""

    theirs: str
    ours: str
    default: Any = None


@dataclass(frozen=True)
class Adapter:
    """How a family is read from, and written to, checkpoints of the ecosystem."""

    model_type: str
    family: Callable[..., nn.Module]
    architectures: Mapping[str, str]  # their class, and what our model is to answer with
    numbers: Sequence[Number]
    table: Callable[[Made], Table]
    refine: Callable[[Config, Collection[str], dict[str, Any]], None] = lambda config, names, arguments: None
    describe: Callable[[dict[str, Any], Config], None] = lambda arguments, config: None
    expected: Mapping[str, Any] | None = None  # keys that must have one value, or be missing
    alive: Callable[[Made], Table] | None = None  # by the names of their modules, where files have others

    def build(self, config: Config, architecture: str, names: Collection[str]) -> nn.Module:
        """The model that a config describes, with fresh weights; `names` are those of its tensors."""
        for key, value in (self.expected or {}).items():
            if config.get(key, value) != value:
                raise ConfigurationError(f"{key} is {config[key]!r} in config.json: only {value!r} is supported")
        arguments: dict[str, Any] = {}
        try:
            for number in self.numbers:
                arguments[number.ours] = here(number, config.get(number.theirs, number.default))
            if "answer" in inspect.signature(self.family).parameters:
                arguments["answer"] = self.architectures[architecture]
            self.refine(config, names, arguments)
            model = self.family(**arguments)
        except GlassformerError:
            raise
        except (AttributeError, TypeError, ValueError) as error:  # words where numbers should be, and the like
            raise ConfigurationError(f"config.json does not describe a {self.model_type} model: {error}") from None
        made_of(model).notes.update(config)
        return model

    def config(self, made: Made) -> Config:
        """The config that describes a model."""
        answer = made.arguments.get("answer", "")
        config: Config = {**made.notes, "model_type": self.model_type, "dtype": "float32"}
        config.pop("torch_dtype", None)  # how older versions spell it
        config["architectures"] = [next(name for name, ours in self.architectures.items() if ours in (answer, ""))]
        for number in self.numbers:
            config[number.theirs] = there(number, made.arguments[number.ours])
        self.describe(made.arguments, config)
        return config


def made_of(model: nn.Module) -> Made:
    """How a model was made; a head that was tied, and has become one of its own, is said to be one."""
    made = getattr(model, "made", None)
    if not isinstance(made, Made):
        raise ConfigurationError(f"a {type(model).__name__} that no family function has made cannot be described")
    return untied(made) if _has_own_head(model) else made


def untied(made: Made) -> Made:
    """The same with a head of its own."""
    if not made.arguments.get("tie_output"):
        return made
    changes: dict[str, Any] = {"tie_output": False}
    if made.arguments.get("scaled", False) is None:  # T5's tied heads are, unless told otherwise
        changes["scaled"] = True
    return replace(made, arguments={**made.arguments, **changes})


def _has_own_head(model: nn.Module) -> bool:
    tables = {id(part.weight) for part in model.modules() if isinstance(part, Embedding)}
    return any(isinstance(part, Head) and id(part.weight) not in tables for part in model.modules())


def here(number: Number, value: Any) -> Any:
    """Their value as ours: activations are functions here, words there."""
    if not number.ours.endswith("activation"):
        return value
    if value not in ACTIVATIONS:
        raise ConfigurationError(f"{number.theirs} is {value!r} in config.json: expected {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[value]


def there(number: Number, value: Any) -> Any:
    """Our value as theirs."""
    if not number.ours.endswith("activation"):
        return value
    names = [name for name, function in ACTIVATIONS.items() if function is value]
    if not names:
        raise ConfigurationError(f"the activation {value!r} has no name in that format")
    return names[0]
