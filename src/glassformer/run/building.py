"""From the recipe's words to a model, and from a model to words that it can be built from again."""

from __future__ import annotations

import inspect
from typing import Any

from torch import nn

from glassformer.errors import ConfigurationError, RunError
from glassformer.models import FAMILIES, Made
from glassformer.parts import LayerNorm, PostNorm, PreNorm, RMSNorm, gelu, gelu_tanh, relu, silu
from glassformer.pretrained import load as load_checkpoint
from glassformer.recipe import Recipe

PLACEMENTS = {"pre": PreNorm, "post": PostNorm}
ACTIVATIONS = {"relu": relu, "gelu": gelu, "gelu_tanh": gelu_tanh, "silu": silu}
PARTS: dict[str, Any] = {  # what a family may be given, by name
    **ACTIVATIONS,
    "PreNorm": PreNorm,
    "PostNorm": PostNorm,
    "LayerNorm": LayerNorm,
    "RMSNorm": RMSNorm,
    "Linear": nn.Linear,
}
ANSWERS = {
    "masked-language-modelling": "words",
    "classification": "classes",
    "answering": "span",
}  # what an encoder is asked for by each task


def build(recipe: Recipe, source_vocabulary: int = 0, target_vocabulary: int = 0, *, classes: int = 0) -> nn.Module:
    """The model that a recipe describes, for vocabularies of these sizes, with fresh weights or a checkpoint's."""
    section, task = recipe.model, recipe.task.kind
    if section.pretrained is not None:
        return _adapted(load_checkpoint(section.pretrained), recipe, classes)
    words: dict[str, Any] = section.model_dump(exclude={"family", "pretrained"})
    words["residual"] = PLACEMENTS[words.pop("norm")]
    if (activation := words.pop("activation")) is not None:
        words["activation"] = ACTIVATIONS[activation]
    words["head_width"] = section.width // section.heads
    words |= {"vocabulary": source_vocabulary, "target_vocabulary": target_vocabulary}
    words |= {"length": recipe.data.max_tokens, "answer": ANSWERS.get(task), "classes": classes}
    family = FAMILIES[section.family]
    known = inspect.signature(family).parameters
    return family(**{name: value for name, value in words.items() if name in known})


def _adapted(model: nn.Module, recipe: Recipe, classes: int) -> nn.Module:
    """A checkpoint's model, asked for what the task wants: where that is something new, with a fresh head."""
    made, answer = _made(model), ANSWERS.get(recipe.task.kind)
    if "answer" not in made.arguments:
        if answer is not None:
            raise ConfigurationError(f"model.pretrained is a {made.family}, which does no {recipe.task.kind}")
        return model
    if answer is None:
        raise ConfigurationError(f"model.pretrained is a {made.family}, which reads but does not write")
    wanted = {"answer": answer, "classes": classes, "dropout": recipe.model.dropout, "pooler": False}
    new = FAMILIES[made.family](**made.arguments | wanted)
    old = model.state_dict()
    if (pooler := getattr(model, "pooler", None)) is not None:  # it has read whole texts before
        old |= {f"head.pool.{name}": tensor for name, tensor in pooler.state_dict().items()}
    own = new.state_dict()
    new.load_state_dict(
        {name: old[name] if name in old and old[name].shape == value.shape else value for name, value in own.items()}
    )
    return new


def _made(model: nn.Module) -> Made:
    made = getattr(model, "made", None)
    if not isinstance(made, Made):
        raise ConfigurationError("this model does not say what it was made from: build it with a family's function")
    return made


def described(model: nn.Module) -> dict[str, Any]:
    """What a model was made from, in words and numbers that JSON can hold."""
    made, names = _made(model), {id(part): name for name, part in PARTS.items()}
    arguments = {}
    for key, value in made.arguments.items():
        if not isinstance(value, int | float | str | None) and id(value) not in names:
            raise ConfigurationError(f"the model's {key}, {value!r}, has no name that a run folder could hold")
        arguments[key] = {"part": names[id(value)]} if id(value) in names else value
    return {"family": made.family, "arguments": arguments}


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
