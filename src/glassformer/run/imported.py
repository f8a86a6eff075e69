"""A checkpoint from elsewhere in use: what it can do follows from what its model answers with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from glassformer.errors import InputError
from glassformer.models import DecoderOnly, EncoderDecoder, EncoderOnly
from glassformer.pretrained import load as load_checkpoint
from glassformer.pretrained.files import read_config
from glassformer.recipe import Data, Decode, LanguageTask, MaskedTask, Recipe, Task, Train, TranslationTask
from glassformer.run.filler import Filler
from glassformer.run.importing import guesses_words, read_habits, read_tokenizers
from glassformer.run.language import LanguageModel
from glassformer.run.run import Run
from glassformer.run.written import places
from glassformer.training import resolve

UNLIMITED = 2**31 - 1


def load_imported(path: Path, device: str) -> Run | LanguageModel | Filler:
    """The checkpoint from elsewhere in a folder. Texts are read as they are: its tokenizer knows what it wants."""
    model: Any = load_checkpoint(path).to(resolve(device))
    source, target = read_tokenizers(path, read_config(path))
    if isinstance(model, EncoderDecoder):
        return Run(_recipe(TranslationTask(), model), model, source, target, path, read_habits(path))
    if isinstance(model, DecoderOnly):
        task = LanguageTask(kind="language-modelling")
        return LanguageModel(_recipe(task, model), model, target, path, read_habits(path))
    if isinstance(model, EncoderOnly) and guesses_words(model):
        return Filler(_recipe(MaskedTask(kind="masked-language-modelling"), model), model, source, path)
    raise InputError(f"{path} neither writes nor fills gaps: use it from Python, with glassformer.pretrained.load")


def _recipe(task: Task, model: nn.Module) -> Recipe:
    """What a recipe would say of a model that nobody here has trained."""
    data = Data(normalise="none", strip=False, max_tokens=places(model) or UNLIMITED)
    return Recipe.model_construct(task=task, source=None, data=data, decode=Decode(beam=1), train=Train())  # type: ignore[arg-type]
