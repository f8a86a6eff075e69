"""The recipe: everything that a training run needs to know, in one TOML file, checked before anything starts.

Each section is a class, each key a field with its meaning; the reference in `docs/recipe.md` is made from them.
"""

from glassformer.recipe.effects import settled, without_effect
from glassformer.recipe.model import Fresh, Pretrained
from glassformer.recipe.reading import (
    RecipeWarning,
    anchored,
    base_of,
    bundled,
    find_recipe,
    make_recipe,
    read_recipe,
    same,
    to_toml,
)
from glassformer.recipe.recipe import Recipe
from glassformer.recipe.sections import Data, Decode, Tokenizer, Train, Tune
from glassformer.recipe.values import Section

__all__ = [
    "Data",
    "Decode",
    "Fresh",
    "Pretrained",
    "Recipe",
    "RecipeWarning",
    "Section",
    "Tokenizer",
    "Train",
    "Tune",
    "anchored",
    "base_of",
    "bundled",
    "find_recipe",
    "make_recipe",
    "read_recipe",
    "same",
    "settled",
    "to_toml",
    "without_effect",
]
