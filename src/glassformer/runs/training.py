"""From a recipe to a run: prepare the data, train the model, write the folder."""

from __future__ import annotations

import os
import warnings
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import nn

from glassformer.data import Batches, Corpus
from glassformer.errors import ConfigurationError, DataError, RunError, TrainingError
from glassformer.interop import save_lora
from glassformer.models.family import blueprint_of
from glassformer.parts import adapt, merged
from glassformer.recipe import Recipe, Tune, anchored, same
from glassformer.runs import folder as files
from glassformer.runs.building import build, prepare_corpus
from glassformer.runs.embedding import fill
from glassformer.runs.metrics import recording
from glassformer.tasks.run import Run
from glassformer.training import Checkpoints, Trainer
from glassformer.training.distribution import Distribution, distribution
from glassformer.training.tuning import choose
from glassformer.writing import read_json

ADAPTER = "adapter"  # the folder of what LoRA has learned, as `peft` has it


class Listener:
    """Is told how a training goes. This one does nothing: a progress bar overrides what it wants to know."""

    def stage(self, name: str, done: int, total: int | None) -> None:
        """Preparation has come so far."""

    def prepared(self, corpus: Corpus, model: nn.Module) -> None:
        """The data is ready, the model is built."""

    def say(self, line: str) -> None:
        """Something is worth a line."""

    def tick(self, record: dict[str, Any]) -> None:
        """A step was taken."""

    def log(self, record: dict[str, Any]) -> None:
        """Something was measured."""


def train(
    recipe: Recipe,
    out: Path,
    base: Path | None = None,
    resume: bool = False,
    listener: Listener | None = None,
) -> Run:
    """Train what the recipe says into the folder `out`; `base` is where the recipe's paths start from."""
    listener = listener or Listener()
    recipe = anchored(recipe, base or Path.cwd())
    with distribution(recipe.train.device, recipe.train.strategy) as place, ExitStack() as held:
        place.alone(lambda: _check_place(out, resume))
        place.alone(lambda: held.enter_context(files.reserved(out)))
        place.alone(lambda: _check_run(recipe, out, resume))  # of which no other process can begin or end one now
        # Rank 0 prepares; the others find everything in the cache.
        corpus = place.alone(lambda: prepare_corpus(recipe, listener.stage)) or prepare_corpus(recipe)
        rows = corpus.splits["train"]
        if not len(rows):
            raise DataError(f"no example is left to train on: {corpus.report.sentence()}")
        torch.manual_seed(recipe.train.seed)
        model = _tuned(build(recipe, corpus.assets), recipe.tune)
        _check_beam(recipe, model)
        filled = None
        if recipe.pretrained is None and getattr(recipe.model, "embeddings", None) is not None:
            filled = fill(model, recipe.model, corpus.assets.tokenizers[0], rows)
        if place.main:
            listener.prepared(corpus, model)
            if filled is not None:
                listener.say(str(filled))
        place.alone(lambda: _write_setting(recipe, out, corpus, model))
        return _learn(recipe, out, corpus, model, place, resume, listener)


def _tuned(model: nn.Module, section: Tune) -> nn.Module:
    """The model, with those weights to be trained that the recipe names."""
    if section.mode == "lora":
        model = adapt(model, section.rank, section.alpha, section.dropout, section.targets)
    choose(model, section.mode)
    return model


def _learn(
    recipe: Recipe,
    out: Path,
    corpus: Corpus,
    model: nn.Module,
    place: Distribution,
    resume: bool,
    listener: Listener,
) -> Run:
    """The training itself, and the weights that come of it."""
    task, options = recipe.task, recipe.train
    collator = task.collator(recipe, corpus, model)
    batches = Batches(collator.pairs, options.batch_tokens, collator, options.seed)
    if options.tokens is not None and options.minutes is None:
        steps = batches.steps_for(options.tokens, options.accumulate * place.world)
        options = options.model_copy(update={"steps": steps})
    run: Run = task.Run(recipe, model, corpus.assets, out)
    examples = corpus.held_out("valid")

    def validate(model: nn.Module) -> dict[str, float]:
        return run.with_model(model).measure(examples, options.validate_sentences)

    with recording(out, _saved(out) if resume else 0, listener.log) if place.main else nullcontext() as log:
        unfreeze = recipe.tune.every if recipe.tune.mode == "unfreeze" else 0
        trainer = Trainer(
            model, batches, options, out, task.loss, validate if examples else None, log, place, listener.tick, unfreeze
        )
        trainer.run(resume)
    run.model = trainer.model.eval()
    place.alone(lambda: _keep(run, out, recipe.tune))
    return run


def _keep(run: Run, out: Path, section: Tune) -> None:
    """Write the weights to use; those of LoRA are written separately too, and merged into the others."""
    if section.mode == "lora":
        save_lora(run.model, out / ADAPTER)
        run.model = merged(run.model).eval()
    files.write_weights(out, run.model)


def _saved(out: Path) -> int:
    """The step that training continues from."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the trainer names damaged checkpoints
        latest = Checkpoints(out).latest_good()
    return latest.step if latest else 0


def _check_place(out: Path, resume: bool) -> None:
    """Refuse to begin where nothing can be written, and to resume where nothing is."""
    there = next(place for place in (out, *out.absolute().parents) if place.exists())
    if not there.is_dir():
        raise RunError(f"{out} cannot be a run folder: {there} is a file")
    if resume and not out.exists():
        raise RunError(f"{out}: there is nothing to resume; leave out --resume to begin")
    if not os.access(there, os.W_OK):
        raise TrainingError(f"{out} cannot be written to: you have no permission to write in {there}")


def _check_run(recipe: Recipe, out: Path, resume: bool) -> None:
    """Refuse to train over something else, and to resume with another model; a beginning that was cut off is no run."""
    if files.is_cut_off(out):
        return
    if not files.is_run(out):
        for name in (files.RECIPE, files.CONFIG):
            if (out / name).exists():
                raise RunError(f"{out} holds a {name} but no run: choose another folder with --out")
        if resume:
            raise RunError(f"{out}: there is nothing to resume; leave out --resume to begin")
        return
    if not resume:
        raise RunError(f"{out} already holds a run: resume it with --resume, or choose another folder with --out")
    before = files.read_run(out)
    if before.format < files.FORMAT:
        raise RunError(f"{out} was begun by Glassformer 0.1: resume it with that version, or train it again")
    for part in ("task", "source", "data", "tokenizer", "model", "tune"):
        if not same(getattr(before.recipe, part), getattr(recipe, part)):
            raise RunError(f"{out} was trained with another [{part}]: resume with its own recipe, {out / files.RECIPE}")
    if before.recipe.train.optimiser != recipe.train.optimiser:
        found = before.recipe.train.optimiser
        raise RunError(f"{out} was trained with another train.optimiser, {found}: resume with it")


def _check_beam(recipe: Recipe, model: nn.Module) -> None:
    """Refuse a search for more outputs at a time than there are tokens."""
    arguments = blueprint_of(model).arguments
    most = arguments.get("target_vocabulary") or arguments.get("vocabulary")
    if recipe.task.writes and most is not None and recipe.decode.beam > most:
        raise ConfigurationError(f"decode.beam is {recipe.decode.beam}, but the vocabulary has {most} tokens: lower it")


def _write_setting(recipe: Recipe, out: Path, corpus: Corpus, model: nn.Module) -> None:
    """Write all of a run but its weights; refuse to resume with other data."""
    if files.is_run(out) and (out / files.DATA).exists():
        before = read_json(out / files.DATA, files.DataFacts).checksums
        tokenizers = [tokenizer.to_json() for tokenizer in files.read_tokenizers(out)]
        if tokenizers != [each.to_json() for each in corpus.assets.tokenizers] or before != corpus.checksums:
            raise RunError(f"the data has changed since {out} was begun: to resume, it must be the same")
    try:
        files.write_setting(out, recipe, model, corpus)
    except OSError as error:
        raise TrainingError(f"{out} cannot be written to: {error.strerror or error}") from None
