"""The recipe: everything that a training run needs to know, in one TOML file, checked before anything starts.

Each section is a class, each key a field with its meaning; the reference in `docs/recipe.md` is made from them.
"""

from glassformer.recipe.effects import reset_idle_keys as reset_idle_keys
from glassformer.recipe.effects import without_effect as without_effect
from glassformer.recipe.model import Fresh as Fresh
from glassformer.recipe.model import Pretrained as Pretrained
from glassformer.recipe.reading import RecipeWarning as RecipeWarning
from glassformer.recipe.reading import base_of as base_of
from glassformer.recipe.reading import bundled as bundled
from glassformer.recipe.reading import find_recipe as find_recipe
from glassformer.recipe.reading import make_recipe as make_recipe
from glassformer.recipe.reading import read_recipe as read_recipe
from glassformer.recipe.reading import same as same
from glassformer.recipe.reading import to_toml as to_toml
from glassformer.recipe.reading import with_absolute_paths as with_absolute_paths
from glassformer.recipe.reading import with_paths as with_paths
from glassformer.recipe.recipe import Recipe as Recipe
from glassformer.recipe.sections import Data as Data
from glassformer.recipe.sections import Decode as Decode
from glassformer.recipe.sections import Tokenizer as Tokenizer
from glassformer.recipe.sections import Train as Train
from glassformer.recipe.sections import Tune as Tune
from glassformer.recipe.values import Section as Section
