"""The recipe: everything that a training run needs to know, in one TOML file, checked before anything starts.

Each section is a class here, each key a field with its meaning; the reference in `docs/recipe.md` is made from them.
"""

from glassformer.recipe.recipe import Recipe
from glassformer.recipe.sections import Data, Decode, Model, Tokenizer, Train, Tune
from glassformer.recipe.sources import (
    AlignedSource,
    DatesSource,
    DebianSource,
    DigitsSource,
    Files,
    FilesSource,
    FolderSource,
    HuggingFaceSource,
    ImageFolderSource,
    JsonlSource,
    LabelledFolderSource,
    PoSource,
    PythonSource,
    Source,
    SquadSource,
    TextSource,
    TmxSource,
    TopicsSource,
    ToySource,
    TsvSource,
)
from glassformer.recipe.tasks import (
    AnsweringTask,
    ClassificationTask,
    CorruptionTask,
    ImagesTask,
    LanguageTask,
    MaskedTask,
    Task,
    TranslationTask,
)
from glassformer.recipe.values import Section

__all__ = [
    "AlignedSource",
    "AnsweringTask",
    "ClassificationTask",
    "CorruptionTask",
    "Data",
    "DatesSource",
    "DebianSource",
    "Decode",
    "DigitsSource",
    "Files",
    "FilesSource",
    "FolderSource",
    "HuggingFaceSource",
    "ImageFolderSource",
    "ImagesTask",
    "JsonlSource",
    "LabelledFolderSource",
    "LanguageTask",
    "MaskedTask",
    "Model",
    "PoSource",
    "PythonSource",
    "Recipe",
    "Section",
    "Source",
    "SquadSource",
    "Task",
    "TextSource",
    "TmxSource",
    "Tokenizer",
    "TopicsSource",
    "ToySource",
    "Train",
    "TranslationTask",
    "TsvSource",
    "Tune",
]
