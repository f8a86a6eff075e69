"""Converters: one for each family, between our models and the checkpoints of `transformers`.

A list of keys translates the configuration, a table of names translates the weights; both are read in both directions.
Every key of a config.json is one of these, or the checkpoint is refused:

translated     `keys`, and `refined`: those that `refine` reads
fixed          `fixed`: only the value in which their model is ours
ignored        `IGNORED`, and the family's own `ignored`: what the model computes does not depend on them
unknown        only where it is off: null, false or empty

"Ours" is Glassformer's side, "theirs" the side of `transformers`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import NoneType
from typing import Any, get_args

from torch import nn

from glassformer.errors import ConfigurationError, GlassformerError
from glassformer.interop.names import Table
from glassformer.models.family import GIVEN, Argument, Blueprint, blueprint_of, family_parameters
from glassformer.parts import gelu, gelu_tanh, relu, silu

Config = dict[str, Any]
ACTIVATIONS = {  # the first name of each function is the one that is written
    "relu": relu,
    "gelu": gelu,
    "gelu_python": gelu,
    "gelu_new": gelu_tanh,
    "gelu_fast": gelu_tanh,
    "gelu_accurate": gelu_tanh,
    "gelu_pytorch_tanh": gelu_tanh,
    "gelu_python_tanh": gelu_tanh,
    "silu": silu,
    "swish": silu,
}
NO_EFFECT = {  # keys of all families that never change what a model computes, by what they are about
    "the file": """architectures transformers_version name_or_path _name_or_path _commit_hash tokenizer_class prefix
        finetuning_task task_specific_params model_max_length sentence_transformers transformers.js_config
        grapheme_chars phoneme_chars""",
    "how the model is run": """dtype torch_dtype use_bfloat16 torchscript attn_implementation _attn_implementation
        _attn_implementation_autoset experts_implementation use_cache output_past output_attentions
        output_hidden_states return_dict use_return_dict chunk_size_feed_forward gradient_checkpointing
        tie_last_hidden_states""",
    "training": """initializer_range initializer_factor init_std classifier_dropout classif_dropout encoder_layerdrop
        decoder_layerdrop problem_type""",
    "labels, which only classifiers read": "id2label label2id num_labels _num_labels",
    "special tokens and generation, read with generation_config.json": """bos_token_id eos_token_id pad_token_id
        sep_token_id cls_token_id mask_token_id unk_token_id decoder_start_token_id forced_bos_token_id
        forced_eos_token_id force_bos_token_to_be_generated max_length max_new_tokens min_length min_new_tokens
        do_sample early_stopping num_beams num_beam_groups diversity_penalty penalty_alpha temperature top_k top_p
        min_p typical_p epsilon_cutoff eta_cutoff repetition_penalty encoder_repetition_penalty length_penalty
        no_repeat_ngram_size encoder_no_repeat_ngram_size bad_words_ids suppress_tokens begin_suppress_tokens
        remove_invalid_values exponential_decay_length_penalty num_return_sequences output_scores output_logits
        return_dict_in_generate renormalize_logits constraints force_words_ids guidance_scale max_time sequence_bias
        stop_strings""",
}
IGNORED = frozenset(name for names in NO_EFFECT.values() for name in names.split())


def activation(name: Any, key: str) -> Any:
    """The activation function that a key names."""
    if not isinstance(name, str) or name not in ACTIVATIONS:
        raise ConfigurationError(f"{key} is {name!r}: these activations are supported: {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


def activation_name(function: Any) -> str:
    """The name of an activation function in a config.json."""
    names = [name for name, each in ACTIVATIONS.items() if each is function]
    if not names:
        raise ConfigurationError(f"the activation {function!r} has no name in config.json: {', '.join(ACTIVATIONS)}")
    return names[0]


def side(size: Any, key: str) -> Any:
    """The side of a square, which a config.json may write twice."""
    if not isinstance(size, list):
        return size
    if len(size) != 2 or size[0] != size[1]:
        raise ConfigurationError(f"{key} is {size}: only squares are supported")
    return size[0]


@dataclass(frozen=True)
class Key:
    """A key of their config.json, our argument for it, and their default where the key is missing.

    Where our argument is None, their key gets the value of `fallback`, another argument of ours. `read` makes our value
    of theirs, `write` theirs of ours; without them the values are the same.
    """

    theirs: str
    ours: str
    default: Any = None
    fallback: str = ""
    read: Callable[[Any, str], Any] = lambda value, key: value
    write: Callable[[Any], Any] = lambda value: value

    def to_ours(self, config: Config, argument: Argument) -> Any:
        """The value of our argument."""
        value = config.get(self.theirs, self.default)
        ours = self.read(value, self.theirs)
        if expected := _mistyped(ours, argument.annotation):
            raise ConfigurationError(f"{self.theirs} is {value!r}: expected {expected}")
        return ours

    def to_theirs(self, arguments: Mapping[str, Any]) -> Any:
        """The value of their key."""
        value = arguments[self.ours]
        return self.write(arguments[self.fallback] if value is None and self.fallback else value)


def activation_key(theirs: str, default: str) -> Key:
    """The key that names the activation function."""
    return Key(theirs, "activation", default, read=activation, write=activation_name)


def _mistyped(value: Any, annotation: Any) -> str:
    """What was expected instead of a value that is no number or truth value as its annotation says; or nothing.

    Whole numbers are sizes, of which our families take 0 as a size that is not given.
    """
    kinds = get_args(annotation) or (annotation,)
    names = {bool: "true or false", int: "a whole number from 1", float: "a number", NoneType: "null"}
    if not all(isinstance(kind, type) and kind in names for kind in kinds):
        return ""
    whole = type(value) is int
    fits = (type(value) in kinds and not (whole and value < 1)) or (whole and float in kinds)
    return "" if fits else " or ".join(names[kind] for kind in kinds)


def _shown(value: Any, argument: Argument) -> Any:
    """A value of an argument, by its name where it has one."""
    return (argument.named and argument.named.name(value)) or getattr(value, "__name__", value)


@dataclass(frozen=True)
class Converter:
    """How a family is read from and written to checkpoints of `transformers`.

    `architectures` maps the classes of `transformers` to our argument `answer`. After the keys, `refine` sets the
    arguments that depend on more than one key or on the names of the tensors; `describe` sets the keys that depend on
    more than one argument. `expressed` are arguments that `refine` and `describe` translate. `aliases` are other names
    of keys. `module_table` names weights by the modules of `transformers`, in families whose files use other names.
    """

    model_type: str
    family: Callable[..., nn.Module]
    architectures: Mapping[str, str]
    keys: Sequence[Key]
    table: Callable[[Blueprint], Table]
    refine: Callable[[Config, Collection[str], dict[str, Any]], None] = lambda config, names, arguments: None
    describe: Callable[[dict[str, Any], Config], None] = lambda arguments, config: None
    module_table: Callable[[Blueprint], Table] | None = None
    expressed: Collection[str] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    refined: Collection[str] = ()
    fixed: Mapping[str, Any] = field(default_factory=dict)
    ignored: Collection[str] = ()

    def build(self, config: Config, architecture: str, names: Collection[str]) -> nn.Module:
        """The model that a config describes, with fresh weights; `names` are those of the checkpoint's tensors."""
        try:
            known, arguments = self.understood(config)
            if "answer" in inspect.signature(self.family).parameters:
                arguments["answer"] = self.architectures[architecture]
            self.refine(known, names, arguments)
            model = self.family(**arguments)
        except GlassformerError:
            raise
        except (AttributeError, TypeError, ValueError) as error:  # a string instead of a number, and the like
            raise ConfigurationError(f"this does not describe a {self.model_type} model: {error}") from None
        blueprint_of(model).notes.update(known)
        return model

    def understood(self, config: Config) -> tuple[Config, dict[str, Any]]:
        """A config without aliases, every key of which is understood, and the arguments that its keys translate to."""
        known = dict(config)
        for alias, key in self.aliases.items():
            if alias in known and known.setdefault(key, known[alias]) != known.pop(alias):
                both = f"{key} is {known[key]!r}, but {alias} is {config[alias]!r}"
                raise ConfigurationError(f"{both}, and both mean the same: delete the wrong one")
        self._check(known)
        parameters = family_parameters(self.family)
        return known, {key.ours: key.to_ours(known, parameters[key.ours]) for key in self.keys}

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
            default = argument.default
            wanted = f"without model.{name}" if default is None else f"with model.{name} = {_shown(default, argument)}"
            raise ConfigurationError(
                f"a {made.family} with {name} = {_shown(value, argument)} has no counterpart in transformers: "
                f"train one {wanted}"
            )

    def _check(self, config: Config) -> None:
        """Refuse a key whose value is not understood."""
        fixed = {"model_type": self.model_type, **self.fixed}
        known = {*(key.theirs for key in self.keys), *self.refined, *self.aliases, *self.ignored, *IGNORED}
        for key, value in config.items():
            if key in fixed and value != fixed[key]:
                only = f"only {fixed[key]!r} is supported in a {self.model_type} model"
                raise ConfigurationError(f"{key} is {value!r:.80}: {only}")
            if key not in fixed and key not in known and not (value is None or value is False or value in ("", [], {})):
                raise ConfigurationError(
                    f"{key} is {value!r:.80}, a key that is not known in a {self.model_type} model: "
                    "delete it if the model does not depend on it"
                )


@dataclass(frozen=True)
class Equivalent:
    """A family that `transformers` has only as another: `model` makes the other's model, which computes the same."""

    family: Callable[..., nn.Module]
    model: Callable[[nn.Module], nn.Module]


def labels_config(labels: Sequence[str]) -> Config:
    """The keys of config.json that name the labels of a classifier."""
    return {
        "id2label": {str(number): label for number, label in enumerate(labels)},
        "label2id": {label: number for number, label in enumerate(labels)},
    }


def label_count(config: Config) -> int:
    """The number of labels of a classifier: num_labels wins over the names; 2 where its config.json is silent."""
    number, names = config.get("num_labels"), config.get("id2label")
    count = int(number) if number is not None else 2 if names is None else len(names)
    if count < 1:
        raise ConfigurationError(
            f"{'id2label' if number is None else 'num_labels'} names no label: expected one or more"
        )
    return count


def complete_labels(config: Config, classes: int) -> None:
    """Name labels by their numbers, as `transformers` does, where the config names another number of them."""
    config.pop("num_labels", None)
    if len(config.get("id2label") or {}) != classes:
        config.update(labels_config([f"LABEL_{number}" for number in range(classes)]))
