"""Corpora: what a recipe's examples are made into before anything is learned from them."""

from __future__ import annotations

from pathlib import Path

from glassformer.data import Prepared, Progress, prepare
from glassformer.pretrained import files as checkpoints
from glassformer.recipe import Recipe
from glassformer.run.building import PLACE
from glassformer.run.folder import RECIPE
from glassformer.run.importing import checkpoint_habits, read_habits, read_tokenizers
from glassformer.text import Habits, Tokenizer


def prepare_texts(recipe: Recipe, base: Path, cache: Path, progress: Progress | None = None) -> Prepared:
    """The recipe's texts as tokens; a checkpoint that it begins with brings its tokenizers and its habits along."""
    given = _tokenizers(recipe)
    return prepare(recipe, base, cache, progress, given, None if given is None else _habits(recipe, given))


def _habits(recipe: Recipe, tokenizers: tuple[Tokenizer, Tokenizer]) -> Habits | None:
    """The special tokens of a checkpoint that writes; a run of ours that has none of its own is like a fresh one."""
    if recipe.task.kind != "translation":
        return None
    folder = checkpoints.find(str(recipe.model.pretrained))
    known = read_habits(folder)
    return known if known is not None or (folder / RECIPE).is_file() else checkpoint_habits(folder, tokenizers)


def _tokenizers(recipe: Recipe) -> tuple[Tokenizer, Tokenizer] | None:
    """The tokenizers of the checkpoint that a recipe begins with."""
    if recipe.model.pretrained is None:
        return None
    folder = checkpoints.find(recipe.model.pretrained, PLACE)
    return read_tokenizers(folder, checkpoints.read_config(folder))
