"""The kinds of runs: for each task, what its batches are, what is lost on them, and who uses what was learned."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

from torch import nn

from glassformer.data import Prepared, Progress, Report
from glassformer.data.batches import Collate
from glassformer.errors import InputError
from glassformer.recipe import Recipe
from glassformer.run import folder as files
from glassformer.run.answerer import Answerer
from glassformer.run.classifier import Classifier, tells_segments
from glassformer.run.corpora import prepare_texts
from glassformer.run.importing import IMPORT
from glassformer.run.run import Run
from glassformer.tasks import (
    Loss,
    PairCollator,
    SpanCollator,
    TextCollator,
    answering_loss,
    classification_loss,
    translation_loss,
)
from glassformer.text import Tokenizer
from glassformer.training import resolve


class Use(Protocol):
    """A model in use: whatever else it does, it can be measured, and its model exchanged for another."""

    recipe: Recipe
    model: Any
    path: Path | None

    def with_model(self, model: nn.Module) -> Self:
        """The same with another model."""
        ...

    def measure(self, examples: Sequence[Any], most: int) -> dict[str, float]:
        """The loss on held-out examples, and scores by name; what takes long is done for the first `most` only."""
        ...

    def pairs(self, split: str = "test") -> list[Any]:
        """The examples that were kept out of training."""
        ...


class Corpus(Protocol):
    """What is learned from: tokens of texts, pixels of images."""

    @property
    def splits(self) -> Mapping[str, Any]:
        """The examples of train, valid and test, as batches are made of them."""
        ...

    @property
    def labels(self) -> list[str]:
        """What is told apart, if anything, in the order of the numbers."""
        ...

    @property
    def tokenizers(self) -> tuple[Tokenizer, ...]:
        """Those of source and target; none where nothing is read or written."""
        ...

    @property
    def report(self) -> Report:
        """What became of the source's examples."""
        ...

    @property
    def checksums(self) -> dict[str, list[int]]:
        """Of its files."""
        ...

    def held_out(self, split: str) -> list[Any]:
        """The examples of valid or test, as a run measures itself on them."""
        ...


@dataclass(frozen=True)
class Kind:
    """What belongs to a task."""

    loss: Loss
    collator: Callable[[Any, nn.Module], Collate[Any]]
    use: Callable[[Recipe, nn.Module, Any, Path | None], Use]
    load: Callable[[Path, str], Use]
    prepare: Callable[[Recipe, Path, Path, Progress | None], Corpus] = prepare_texts
    keep: Callable[[Path, str, Any], None] = files.write_pairs  # held-out examples, in the run's folder


def _pairs(prepared: Prepared, model: nn.Module) -> PairCollator:
    return PairCollator(prepared.splits["train"], prepared.source_tokenizer.pad, prepared.target_tokenizer)


def _texts(prepared: Prepared, model: nn.Module) -> TextCollator:
    tokenizer = prepared.source_tokenizer
    return TextCollator(prepared.splits["train"], tokenizer.pad, tokenizer.end if tells_segments(model) else None)


def _windows(prepared: Prepared, model: nn.Module) -> SpanCollator:
    tokenizer = prepared.source_tokenizer
    return SpanCollator(prepared.splits["train"], tokenizer.pad, tokenizer.end if tells_segments(model) else None)


def _translating(recipe: Recipe, model: nn.Module, prepared: Prepared, path: Path | None) -> Run:
    return Run(recipe, model, prepared.source_tokenizer, prepared.target_tokenizer, path)  # type: ignore[arg-type]


def _classifying(recipe: Recipe, model: nn.Module, prepared: Prepared, path: Path | None) -> Classifier:
    return Classifier(recipe, model, prepared.source_tokenizer, prepared.labels, path)


def _answering(recipe: Recipe, model: nn.Module, prepared: Prepared, path: Path | None) -> Answerer:
    return Answerer(recipe, model, prepared.source_tokenizer, path)


def _load_classifier(path: Path, device: str) -> Classifier:
    tokenizer, _ = files.read_tokenizers(path)
    model = files.read_model(path).to(resolve(device))
    return Classifier(files.read_run_recipe(path), model, tokenizer, files.read_config(path)["labels"], path)


def _load_answerer(path: Path, device: str) -> Answerer:
    tokenizer, _ = files.read_tokenizers(path)
    return Answerer(files.read_run_recipe(path), files.read_model(path).to(resolve(device)), tokenizer, path)


KINDS: dict[str, Kind] = {
    "translation": Kind(translation_loss, _pairs, _translating, Run.load),
    "classification": Kind(classification_loss, _texts, _classifying, _load_classifier),
    "answering": Kind(answering_loss, _windows, _answering, _load_answerer),
}


def load(path: str | Path, device: str = "auto") -> Any:
    """The run in a folder, ready for its task."""
    path = Path(path)
    if (path / IMPORT).is_file():
        return Run.load(path, device)
    files.read_config(path)
    return KINDS[files.read_run_recipe(path).task.kind].load(path, device)


def load_as(kind: type[Any], verb: str, path: Path, device: str) -> Any:
    """The run in a folder, which must be of a kind that can be asked to do something."""
    run = load(path, device)
    if not isinstance(run, kind):
        raise InputError(f"{path} does not {verb}: it was trained for {run.recipe.task.kind}")
    return run
