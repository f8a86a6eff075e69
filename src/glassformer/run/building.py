"""From the recipe's words to a model: with fresh weights, or with what another has learned."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import torch
from torch import nn

from glassformer.errors import ConfigurationError
from glassformer.models import FAMILIES, Made
from glassformer.parts import GRU, LSTM, RNN, AdditiveScore, MultiplicativeScore, PostNorm, PreNorm
from glassformer.pretrained import load as load_checkpoint
from glassformer.pretrained.adapter import made_of
from glassformer.pretrained.files import find
from glassformer.recipe import ImagesTask, Recipe
from glassformer.run import folder as files
from glassformer.run.describing import ACTIVATIONS
from glassformer.usual import FAMILIES as SUITED

PLACE = "model.pretrained: "  # where a checkpoint to begin with is named
PLACEMENTS = {"pre": PreNorm, "post": PostNorm}
ADDING = ("masked-language-modelling", "span-corruption")  # tasks that may add tokens to a vocabulary
ANSWERS = {
    "translation": "target",
    "language-modelling": "next",
    "masked-language-modelling": "words",
    "classification": "classes",
    "tagging": "tags",
    "answering": "span",
}  # what a family that answers in several ways is asked for by each task
# The recipe's words that stand for parts; one that is not said is the family's own.
NAMED: dict[str, dict[str, Any]] = {
    "activation": ACTIVATIONS,
    "cell": {"rnn": RNN, "gru": GRU, "lstm": LSTM},
    "attention": {"none": None, "additive": AdditiveScore, "multiplicative": MultiplicativeScore},
}


def build(recipe: Recipe, source_vocabulary: int = 0, target_vocabulary: int = 0, *, classes: int = 0) -> nn.Module:
    """The model that a recipe describes, for vocabularies of these sizes, with fresh weights or a checkpoint's."""
    section, task = recipe.model, recipe.task.kind
    if section.pretrained is not None:
        model = _begun(section.pretrained)
        if task in ADDING:
            model = _grown(model, source_vocabulary)
        _check_fit(made_of(model), recipe, max(source_vocabulary, target_vocabulary))
        return _adapted(model, recipe, classes)
    words: dict[str, Any] = section.model_dump(exclude={"family", "pretrained"}, exclude_none=True)
    words["residual"] = PLACEMENTS[words.pop("norm")]
    words |= {key: parts[words[key]] for key, parts in NAMED.items() if key in words}
    words["head_width"] = section.width // section.heads
    words |= {"vocabulary": source_vocabulary, "target_vocabulary": target_vocabulary}
    words |= {"length": _length(recipe), "answer": ANSWERS.get(task), "classes": classes}
    words["truncate"] = recipe.train.truncate
    if isinstance(recipe.task, ImagesTask):
        words |= {"image": recipe.task.size, "colours": recipe.task.colours}
    family = FAMILIES[section.family]
    known = inspect.signature(family).parameters
    return family(**{name: value for name, value in words.items() if name in known})


def _begun(name: str) -> nn.Module:
    """What a recipe begins with: the model of a run of ours, or of a checkpoint from elsewhere."""
    return files.read_model(Path(name)) if files.is_run(Path(name)) else load_checkpoint(find(name, PLACE))


def _grown(model: nn.Module, vocabulary: int) -> nn.Module:
    """The model with rows for tokens that its vocabulary has got since; those it had stay as they are."""
    made = made_of(model)
    if vocabulary <= made.arguments["vocabulary"]:
        return model
    sizes = {key: vocabulary for key in ("vocabulary", "target_vocabulary") if made.arguments.get(key)}
    new = FAMILIES[made.family](**made.arguments | sizes)
    old = model.state_dict()
    new.load_state_dict(
        {name: torch.cat((old[name], value[len(old[name]) :])) for name, value in new.state_dict().items()}
    )
    return new


def _length(recipe: Recipe) -> int:
    """How many positions a model needs: a decoder also reads the start of what it writes."""
    writes = recipe.task.kind == "translation"
    return max(recipe.data.max_tokens, recipe.decode.max_length) + 1 if writes else recipe.data.max_tokens


def _check_fit(made: Made, recipe: Recipe, vocabulary: int) -> None:
    """Refuse a checkpoint of another kind, texts longer than it reads, and tokens that it does not know."""
    if made.family not in SUITED[recipe.task.kind]:
        suited = ", ".join(SUITED[recipe.task.kind])
        raise ConfigurationError(f"model.pretrained is a {made.family}: {recipe.task.kind} takes one of {suited}")
    if isinstance(recipe.task, ImagesTask):
        size, colours = made.arguments["image"], made.arguments["colours"]
        if (size, colours) != (recipe.task.size, recipe.task.colours):
            raise ConfigurationError(f"model.pretrained sees: task.size must be {size} and task.colours {colours}")
    places, known = made.arguments.get("length"), made.arguments.get("vocabulary")
    most = None if places is None else places - (recipe.task.kind == "translation")  # a decoder's start is one more
    if most is not None and recipe.data.max_tokens > most:
        raise ConfigurationError(
            f"data.max_tokens is {recipe.data.max_tokens}, but model.pretrained has places for {most} tokens: lower it"
        )
    if known is not None and vocabulary > known:
        raise ConfigurationError(
            f"the tokenizer that model.pretrained brings along has {vocabulary} tokens, but its model only {known}: "
            "they do not belong together"
        )


def _adapted(model: nn.Module, recipe: Recipe, classes: int) -> nn.Module:
    """A checkpoint's model, asked for what the task wants: where that is something new, with a fresh head."""
    made, answer = made_of(model), ANSWERS.get(recipe.task.kind)
    if "classes" not in made.arguments:
        new = FAMILIES[made.family](**made.arguments | {"dropout": recipe.model.dropout})
        new.load_state_dict(model.state_dict())
        return new
    wanted = {"answer": answer, "classes": classes, "dropout": recipe.model.dropout, "pooler": False}
    new = FAMILIES[made.family](**made.arguments | {key: wanted[key] for key in wanted if key in made.arguments})
    old = model.state_dict()
    if (pooler := getattr(model, "pooler", None)) is not None:  # it has read whole texts before
        old |= {f"head.pool.{name}": tensor for name, tensor in pooler.state_dict().items()}
    own = new.state_dict()
    new.load_state_dict(
        {name: old[name] if name in old and old[name].shape == value.shape else value for name, value in own.items()}
    )
    return new
