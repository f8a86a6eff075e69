"""The kinds of runs: for each task, what its batches are, what is lost on them, and who uses what was learned."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

from torch import nn

from glassformer.data import Prepared, Progress, Report
from glassformer.data.batches import Collator
from glassformer.data.images import PreparedImages, prepare_images
from glassformer.errors import InputError
from glassformer.parts import merged
from glassformer.pretrained import load_lora
from glassformer.recipe import CorruptionTask, ImagesTask, MaskedTask, Recipe
from glassformer.run import folder as files
from glassformer.run.answerer import Answerer
from glassformer.run.classifier import Classifier, tells_segments
from glassformer.run.corpora import prepare_texts
from glassformer.run.denoiser import Denoiser
from glassformer.run.filler import Filler
from glassformer.run.image_classifier import ImageClassifier, write_images
from glassformer.run.imported import load_imported
from glassformer.run.importing import IMPORT, write_habits
from glassformer.run.language import LanguageModel
from glassformer.run.run import Run
from glassformer.run.tagger import Tagger
from glassformer.tasks import (
    CorruptCollator,
    Corruption,
    ImageCollator,
    Loss,
    MaskCollator,
    Masker,
    PairCollator,
    SpanCollator,
    TagCollator,
    TextCollator,
    WindowCollator,
    Windows,
    answering_loss,
    classification_loss,
    image_loss,
    language_loss,
    masked_loss,
    tagging_loss,
    translation_loss,
)
from glassformer.text import Tokenizer, own_habits
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


def _keep_pairs(path: Path, split: str, corpus: Corpus) -> None:
    files.write_pairs(path, split, corpus.held_out(split))


def _keep_images(path: Path, split: str, corpus: Corpus) -> None:
    write_images(path, split, corpus.splits[split])


@dataclass(frozen=True)
class Kind:
    """What belongs to a task."""

    loss: Loss
    collator: Callable[[Recipe, Any, nn.Module], Collator[Any]]
    use: Callable[[Recipe, nn.Module, Any, Path | None], Use]
    load: Callable[[Path, str], Use]
    prepare: Callable[[Recipe, Path, Path, Progress | None], Corpus] = prepare_texts
    keep: Callable[[Path, str, Corpus], None] = _keep_pairs  # held-out examples, in the run's folder
    note: Callable[[Path, Any], None] = lambda path, corpus: None  # what else the folder keeps of the corpus


def _pairs(recipe: Recipe, prepared: Prepared, model: nn.Module) -> PairCollator:
    habits = prepared.habits or own_habits(*prepared.tokenizers)
    return PairCollator(prepared.splits["train"], habits.pad, habits)


def _texts(recipe: Recipe, prepared: Prepared, model: nn.Module) -> TextCollator:
    tokenizer = prepared.source_tokenizer
    return TextCollator(prepared.splits["train"], tokenizer.pad, tokenizer.end if tells_segments(model) else None)


def _tags(recipe: Recipe, prepared: Prepared, model: nn.Module) -> TagCollator:
    return TagCollator(prepared.splits["train"], prepared.source_tokenizer.pad)


def _windows(recipe: Recipe, prepared: Prepared, model: nn.Module) -> SpanCollator:
    tokenizer = prepared.source_tokenizer
    return SpanCollator(prepared.splits["train"], tokenizer.pad, tokenizer.end if tells_segments(model) else None)


def _documents(recipe: Recipe, prepared: Prepared, model: nn.Module) -> WindowCollator:
    windows = Windows(prepared.splits["train"], recipe.data.max_tokens)
    return WindowCollator(windows, prepared.source_tokenizer.pad)


def _gaps(recipe: Recipe, prepared: Prepared, model: nn.Module) -> MaskCollator:
    task = recipe.task
    assert isinstance(task, MaskedTask)  # noqa: S101  # as KINDS has it
    return MaskCollator(prepared.splits["train"], Masker(prepared.source_tokenizer, task.share))


def _stretches(recipe: Recipe, prepared: Prepared, model: nn.Module) -> CorruptCollator:
    task, tokenizer = recipe.task, prepared.source_tokenizer
    assert isinstance(task, CorruptionTask)  # noqa: S101  # as KINDS has it
    return CorruptCollator(prepared.splits["train"], tokenizer, Corruption.by(tokenizer, task.share, task.mean))


def _images(recipe: Recipe, prepared: PreparedImages, model: nn.Module) -> ImageCollator:
    task = recipe.task
    assert isinstance(task, ImagesTask)  # noqa: S101  # as KINDS has it
    return ImageCollator(prepared.splits["train"], task.mean, task.deviation, task.shift, task.flip)


def _translating(recipe: Recipe, model: nn.Module, prepared: Prepared, path: Path | None) -> Run:
    return Run(recipe, model, *prepared.tokenizers, path, prepared.habits)  # type: ignore[arg-type]


def _keep_habits(path: Path, prepared: Prepared) -> None:
    """What a run that began with a checkpoint must remember of it."""
    if prepared.habits is not None:
        write_habits(path, prepared.habits)


def _keep_sample(path: Path, prepared: Prepared) -> None:
    """What a baseline is taught with."""
    if prepared.sample is not None:
        files.write_text(path / f"{files.SAMPLE}.jsonl", prepared.sample.read_text(encoding="utf-8"))


def _labelling(kind: Callable[..., Use]) -> Callable[[Recipe, nn.Module, Prepared, Path | None], Use]:
    """What uses a model with a tokenizer and labels."""
    return lambda recipe, model, prepared, path: kind(recipe, model, prepared.source_tokenizer, prepared.labels, path)


def _seeing(recipe: Recipe, model: nn.Module, prepared: PreparedImages, path: Path | None) -> ImageClassifier:
    return ImageClassifier(recipe, model, prepared.labels, path)


def _alone(kind: Callable[..., Use]) -> Callable[[Recipe, nn.Module, Prepared, Path | None], Use]:
    """What uses a model with a tokenizer and nothing else."""
    return lambda recipe, model, prepared, path: kind(recipe, model, prepared.source_tokenizer, path)


def _load(kind: Callable[..., Use]) -> Callable[[Path, str], Use]:
    """The same, from a run folder."""

    def load(path: Path, device: str) -> Use:
        tokenizer, _ = files.read_tokenizers(path)
        return kind(files.read_run_recipe(path), files.read_model(path).to(resolve(device)), tokenizer, path)

    return load


def _load_labelling(kind: Callable[..., Use]) -> Callable[[Path, str], Use]:
    """The same, from a run folder."""
    return _load(lambda recipe, model, tokenizer, path: kind(recipe, model, tokenizer, _labels_in(path), path))


def _labels_in(path: Path) -> list[str]:
    labels: list[str] = files.read_config(path)["labels"]
    return labels


def _load_image_classifier(path: Path, device: str) -> ImageClassifier:
    model = files.read_model(path).to(resolve(device))
    return ImageClassifier(files.read_run_recipe(path), model, _labels_in(path), path)


KINDS: dict[str, Kind] = {
    "translation": Kind(translation_loss, _pairs, _translating, Run.load, note=_keep_habits),
    "classification": Kind(
        classification_loss, _texts, _labelling(Classifier), _load_labelling(Classifier), note=_keep_sample
    ),
    "tagging": Kind(tagging_loss, _tags, _labelling(Tagger), _load_labelling(Tagger)),
    "images": Kind(image_loss, _images, _seeing, _load_image_classifier, prepare_images, _keep_images),
    "answering": Kind(answering_loss, _windows, _alone(Answerer), _load(Answerer)),
    "language-modelling": Kind(language_loss, _documents, _alone(LanguageModel), _load(LanguageModel)),
    "masked-language-modelling": Kind(masked_loss, _gaps, _alone(Filler), _load(Filler)),
    "span-corruption": Kind(translation_loss, _stretches, _alone(Denoiser), _load(Denoiser)),
}


def load(path: str | Path, device: str = "auto", adapter: str | Path | None = None) -> Any:
    """The run in a folder, ready for its task; what an `adapter` has learned over its model is added to that."""
    run = _loaded(Path(path), device)
    if adapter is not None:
        run.model = merged(load_lora(run.model, adapter)).eval()
    return run


def _loaded(path: Path, device: str) -> Use:
    if (path / IMPORT).is_file():
        return load_imported(path, device)
    files.read_config(path)
    return KINDS[files.read_run_recipe(path).task.kind].load(path, device)


def load_as(
    kind: type[Any] | tuple[type[Any], ...], verb: str, path: Path, device: str, adapter: Path | None = None
) -> Any:
    """The run in a folder, which must be of a kind that can be asked to do something."""
    run = load(path, device, adapter)
    if not isinstance(run, kind):
        raise InputError(f"{path} does not {verb}: it was trained for {run.recipe.task.kind}")
    return run
