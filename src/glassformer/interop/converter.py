"""Converters: one for each family, between our models and the checkpoints of `transformers`.

A list of keys translates the configuration, a table of names translates the weights; both are read in both directions.
"Ours" is Glassformer's side, "theirs" the side of `transformers`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from glassformer.errors import ConfigurationError, GlassformerError
from glassformer.interop.names import Table
from glassformer.models.family import GIVEN, Blueprint, blueprint_of, family_parameters
from glassformer.parts import gelu, gelu_tanh, relu, silu

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
class Key:
    """A key of their config.json, our argument for it, and their default where the key is missing.

    Where our argument is None, their key gets the value of `fallback`, another argument of ours.
    """

    theirs: str
    ours: str
    default: Any = None
    fallback: str = ""

    def to_ours(self, config: Config) -> Any:
        """The value of our argument: an activation is a function, which config.json names by a word."""
        value = config.get(self.theirs, self.default)
        if not self.ours.endswith("activation"):
            return value
        if value not in ACTIVATIONS:
            raise ConfigurationError(f"{self.theirs} is {value!r} in config.json: expected {', '.join(ACTIVATIONS)}")
        return ACTIVATIONS[value]

    def to_theirs(self, arguments: Mapping[str, Any]) -> Any:
        """The value of their key."""
        value = arguments[self.ours]
        if value is None and self.fallback:
            value = arguments[self.fallback]
        if not self.ours.endswith("activation"):
            return value
        names = [name for name, function in ACTIVATIONS.items() if function is value]
        if not names:
            raise ConfigurationError(f"the activation {value!r} has no name in config.json: {', '.join(ACTIVATIONS)}")
        return names[0]


@dataclass(frozen=True)
class Converter:
    """How a family is read from and written to checkpoints of `transformers`.

    `architectures` maps the classes of `transformers` to our argument `answer`. After the keys, `refine` sets the
    arguments that depend on more than one key or on the names of the tensors; `describe` sets the keys that depend on
    more than one argument. `expected` are keys that must have this value, or be missing. `module_table` names weights
    by the modules of `transformers`, in families whose files use other names. `expressed` are arguments that `refine`
    and `describe` translate.
    """

    model_type: str
    family: Callable[..., nn.Module]
    architectures: Mapping[str, str]
    keys: Sequence[Key]
    table: Callable[[Blueprint], Table]
    refine: Callable[[Config, Collection[str], dict[str, Any]], None] = lambda config, names, arguments: None
    describe: Callable[[dict[str, Any], Config], None] = lambda arguments, config: None
    expected: Mapping[str, Any] = field(default_factory=dict)
    module_table: Callable[[Blueprint], Table] | None = None
    expressed: Collection[str] = ()

    def build(self, config: Config, architecture: str, names: Collection[str]) -> nn.Module:
        """The model that a config describes, with fresh weights; `names` are those of the checkpoint's tensors."""
        self._check(config)
        try:
            arguments = {key.ours: key.to_ours(config) for key in self.keys}
            if "answer" in inspect.signature(self.family).parameters:
                arguments["answer"] = self.architectures[architecture]
            self.refine(config, names, arguments)
            model = self.family(**arguments)
        except GlassformerError:
            raise
        except (AttributeError, TypeError, ValueError) as error:  # a string instead of a number, and the like
            raise ConfigurationError(f"config.json does not describe a {self.model_type} model: {error}") from None
        blueprint_of(model).notes.update(config)
        return model

    def config(self, made: Blueprint, notes: Mapping[str, Any]) -> Config:
        """The config.json that describes a model; `notes` are further keys for it."""
        self._check_expressed(made)
        answer = made.arguments.get("answer", "")
        config: Config = {**made.notes, **notes, "model_type": self.model_type, "dtype": "float32"}
        config.pop("torch_dtype", None)  # the name of "dtype" in older versions
        config["architectures"] = [next(name for name, ours in self.architectures.items() if ours in (answer, ""))]
        config.update({key.theirs: key.to_theirs(made.arguments) for key in self.keys})
        self.describe(made.arguments, config)
        self._check(config)
        return config

    def _check_expressed(self, made: Blueprint) -> None:
        """Refuse a model with an argument that is not its family's own and that their config cannot express.

        Dropout does not matter: it does nothing outside training.
        """
        expressed = {key.ours for key in self.keys} | set(self.expressed) | GIVEN
        for name, argument in family_parameters(self.family).items():
            value = made.arguments.get(name, argument.default)
            if name in expressed or name.endswith("dropout") or value == argument.default:
                continue
            shown = (argument.named and argument.named.name(value)) or getattr(value, "__name__", value)
            raise ConfigurationError(f"a {made.family} with {name} = {shown} has no counterpart in transformers")

    def _check(self, config: Config) -> None:
        for key, value in self.expected.items():
            if config.get(key, value) != value:
                expected = f"only {value!r} is supported in a {self.model_type} model"
                raise ConfigurationError(f"{key} is {config[key]!r} in config.json: {expected}")


def labels_config(labels: Sequence[str]) -> Config:
    """The keys of config.json that name the labels of a classifier."""
    return {
        "id2label": {str(number): label for number, label in enumerate(labels)},
        "label2id": {label: number for number, label in enumerate(labels)},
    }


def label_count(config: Config) -> int:
    """The number of labels of a classifier: 2 where its config.json is silent."""
    return len(config["id2label"]) if config.get("id2label") else int(config.get("num_labels", 2))


def complete_labels(config: Config, classes: int) -> None:
    """Name labels by their numbers, as `transformers` does, where the config names another number of them."""
    if len(config.get("id2label") or {}) != classes:
        config.update(labels_config([f"LABEL_{number}" for number in range(classes)]))
