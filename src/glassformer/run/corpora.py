"""Corpora: what a recipe's examples are made into before anything is learned from them."""

from __future__ import annotations

from pathlib import Path

from glassformer.data import Prepared, Progress, prepare
from glassformer.pretrained import files as checkpoints
from glassformer.recipe import Recipe
from glassformer.run.importing import read_tokenizers
from glassformer.text import Tokenizer


def prepare_texts(recipe: Recipe, base: Path, cache: Path, progress: Progress | None = None) -> Prepared:
    """The recipe's texts as tokens; a checkpoint that it begins with brings its tokenizers along."""
    return prepare(recipe, base, cache, progress, _tokenizers(recipe))


def _tokenizers(recipe: Recipe) -> tuple[Tokenizer, Tokenizer] | None:
    """The tokenizers of the checkpoint that a recipe begins with."""
    if recipe.model.pretrained is None:
        return None
    folder = checkpoints.find(recipe.model.pretrained)
    return read_tokenizers(folder, checkpoints.read_config(folder))
