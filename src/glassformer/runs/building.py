"""From a recipe to a model: with new weights, or with those of a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from glassformer.data import Assets, Corpus, Progress, prepare
from glassformer.data.cache import cache_folder
from glassformer.errors import ConfigurationError
from glassformer.interop import load as load_checkpoint
from glassformer.interop.checkpoints import find
from glassformer.interop.generation import checkpoint_special_tokens
from glassformer.interop.huggingface import read_tokenizers
from glassformer.interop.special_tokens import read_special_tokens
from glassformer.models.family import Blueprint, blueprint_of, longest
from glassformer.recipe import Recipe
from glassformer.recipe.model import families_for
from glassformer.registry import FAMILIES
from glassformer.runs.folder import check_finite, read_run
from glassformer.tasks.task import fresh_model
from glassformer.writing import is_trained

KEY = "model.pretrained: "  # where a checkpoint to start from is named


def prepare_corpus(recipe: Recipe, progress: Progress | None = None) -> Corpus:
    """The recipe's examples as rows; a checkpoint to start from brings its tokenizers and special tokens."""
    return prepare(recipe, Path.cwd(), cache_folder(), progress, _checkpoint_assets(recipe))


def _checkpoint_assets(recipe: Recipe) -> Assets | None:
    if recipe.pretrained is None or not recipe.task.tokenizers:
        return None
    folder = find(recipe.pretrained, KEY)
    tokenizers, special = read_tokenizers(folder), None
    if recipe.task.tokenizers == 2:  # a run of ours without special tokens of a checkpoint has its own
        special = read_special_tokens(folder)
        if special is None and not is_trained(folder):
            special = checkpoint_special_tokens(folder, tokenizers)
    return Assets(tokenizers, special_tokens=special)


def build(recipe: Recipe, assets: Assets) -> nn.Module:
    """The model that a recipe describes, for some vocabularies and labels."""
    task, sizes = recipe.task, tuple(tokenizer.size for tokenizer in assets.tokenizers)
    given = task.given(recipe, sizes, len(assets.labels))
    if recipe.pretrained is None:
        return fresh_model(recipe, given)
    model = _loaded(recipe.pretrained)
    if task.adds_tokens and sizes:
        model = _grown(model, sizes[0])
    _check_fit(blueprint_of(model), recipe, max(sizes, default=0))
    return _with_head(model, given, recipe.model.dropout)


def _loaded(name: str) -> nn.Module:
    """The model to start from: of a run of ours, or of a checkpoint from elsewhere."""
    model = read_run(Path(name)).load_model() if is_trained(Path(name)) else load_checkpoint(find(name, KEY))
    check_finite(model, f"{KEY}{name}")
    return model


def _grown(model: nn.Module, vocabulary: int) -> nn.Module:
    """The model with rows for tokens that were added to its vocabulary; the other rows stay as they are."""
    blueprint = blueprint_of(model)
    if vocabulary <= blueprint.arguments["vocabulary"]:
        return model
    sizes = {key: vocabulary for key in ("vocabulary", "target_vocabulary") if blueprint.arguments.get(key)}
    new: nn.Module = FAMILIES[blueprint.family](**blueprint.arguments | sizes)
    old = model.state_dict()
    new.load_state_dict(
        {name: torch.cat((old[name], value[len(old[name]) :])) for name, value in new.state_dict().items()}
    )
    return new


def _check_fit(blueprint: Blueprint, recipe: Recipe, vocabulary: int) -> None:
    """Refuse a checkpoint of an unsuited family, texts longer than it reads, and tokens that it does not know."""
    task = recipe.task
    if task.answer not in FAMILIES[blueprint.family].answers:
        families = ", ".join(families_for(task.answer))
        raise ConfigurationError(f"model.pretrained is a {blueprint.family}: {task.kind} takes one of {families}")
    task.check_checkpoint(blueprint)
    positions, known = longest(blueprint), blueprint.arguments.get("vocabulary")
    most = None if positions is None else positions - (task.length(recipe) > recipe.data.max_tokens)
    if most is not None and task.tokenizers and recipe.data.max_tokens > most:
        raise ConfigurationError(
            f"data.max_tokens is {recipe.data.max_tokens}, but model.pretrained reads {most} tokens at most: lower it"
        )
    if known is not None and vocabulary > known:
        raise ConfigurationError(
            f"the tokenizer of model.pretrained has {vocabulary} tokens, but its model only {known}: "
            "they do not belong together"
        )


def _with_head(model: nn.Module, given: dict[str, Any], dropout: float | None) -> nn.Module:
    """The checkpoint's model with the head that the task needs; a head that it has not learned is new."""
    blueprint = blueprint_of(model)
    changes = {} if dropout is None else {"dropout": dropout}
    if "classes" in blueprint.arguments:
        wanted = {"answer": given["answer"], "classes": given["classes"], "pooler": False}
        changes |= {key: value for key, value in wanted.items() if key in blueprint.arguments}
    new: nn.Module = FAMILIES[blueprint.family](**blueprint.arguments | changes)
    old = model.state_dict()
    if (pooler := getattr(model, "pooler", None)) is not None:  # which has read whole texts before
        old |= {f"head.pool.{name}": tensor for name, tensor in pooler.state_dict().items()}
    own = new.state_dict()
    new.load_state_dict(
        {name: old[name] if name in old and old[name].shape == value.shape else value for name, value in own.items()}
    )
    return new
