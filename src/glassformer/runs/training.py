"""From a recipe to a run: prepare the data, train the model, write the folder."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from glassformer.data import Batches, Corpus
from glassformer.errors import ConfigurationError, DataError, RunError, TrainingError
from glassformer.evaluation import drawn
from glassformer.interop import save_lora
from glassformer.models.family import blueprint_of
from glassformer.parts import adapt, merged
from glassformer.recipe import Recipe, Tune, same, with_absolute_paths, without_effect
from glassformer.runs import folder as files
from glassformer.runs.building import build, prepare_corpus
from glassformer.runs.embedding import fill
from glassformer.runs.looks import Looks
from glassformer.runs.metrics import recording
from glassformer.tasks.objective import Objective
from glassformer.tasks.run import Run, by_length
from glassformer.training import Checkpoints, Trainer
from glassformer.training.distribution import Distribution, distribution
from glassformer.training.loop import TRAIN_LOSS
from glassformer.training.shaping import shape_for
from glassformer.training.tuning import choose
from glassformer.writing import damage, is_trained, read_json

SAMPLED = 500  # training examples whose loss is measured at each validation, at most
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
    recipe = with_absolute_paths(recipe, base or Path.cwd())
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
        model = build(recipe, corpus.assets)
        if recipe.pretrained is None:
            recipe.task.begin(model, corpus)
        model = _tuned(model, recipe.tune)
        _check_beam(recipe, model)
        looks = (
            Looks(recipe.task.Run(recipe, model, corpus.assets, out), recipe.look.texts) if recipe.look.texts else None
        )
        filled = None
        if recipe.pretrained is None and getattr(recipe.model, "embeddings", None) is not None:
            filled = fill(model, recipe.model, corpus.assets.tokenizers[0], rows)
        if place.main:
            listener.prepared(corpus, model)
            if filled is not None:
                listener.say(str(filled))
        whole = resume and (out / files.WEIGHTS).is_file() and damage(out) is None
        place.alone(lambda: _write_setting(recipe, out, corpus, model))
        return _learn(recipe, out, corpus, model, place, resume, whole, listener, looks)


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
    whole: bool,
    listener: Listener,
    looks: Looks | None,
) -> Run:
    """The training itself, and the weights that come of it; `whole`: there are such weights, and they are undamaged."""
    task, options = recipe.task, recipe.train
    collator = task.collator(recipe, corpus, model)
    stepwise = recipe.tune.mode == "unfreeze"
    shape = None if stepwise else shape_for(options, place, model, collator.pairs, task.packs)
    batches = Batches(collator.pairs, options.batch_tokens, collator, options.seed, shape=shape)
    if options.tokens is not None and options.minutes is None:
        steps = batches.steps_for(options.tokens, options.accumulate * place.world)
        options = options.model_copy(update={"steps": steps})
    run: Run = task.Run(recipe, model, corpus.assets, out)
    examples = corpus.held_out("valid")

    training_loss = _training_loss(recipe, corpus, model, len(collator.pairs.lengths)) if examples else None

    if whole and _saved(out) == options.steps:  # what was written at the end stays, whatever has become of checkpoints
        run.model = files.read_run(out).load_model()
        place.alone(lambda: files.write_weights(out, run.model))
        return run
    if resume:  # which may be with more steps: until these are done, the run is unfinished
        place.alone(lambda: (out / files.WEIGHTS).unlink(missing_ok=True))
    with recording(out, _saved(out) if resume else 0, listener.log) if place.main else nullcontext() as log:
        if log is not None:
            log.begin(run, examples)

        def validate(model: nn.Module) -> dict[str, float]:
            current = run.with_model(model)
            found = current.measure(examples, options.validate_sentences)
            if log is not None:
                log.look(current)
            return found if training_loss is None else {**found, TRAIN_LOSS: training_loss(model)}

        if looks is not None:
            place.alone(lambda: looks.forget(_saved(out) if resume else 0))
        trainer = Trainer(
            model,
            batches,
            options,
            out,
            task.loss,
            validate if examples else None,
            log,
            place,
            listener.tick,
            unfreeze=recipe.tune.every if recipe.tune.mode == "unfreeze" else 0,
            look=looks,
            look_every=recipe.look.every,
            shape=shape,
        )
        trainer.run(resume)
    run.model = trainer.model.eval()
    place.alone(lambda: _keep(run, out, recipe.tune))
    return run


def _training_loss(recipe: Recipe, corpus: Corpus, model: nn.Module, every: int) -> Callable[[nn.Module], float]:
    """Measures the loss of some training examples as that of held-out ones: without dropout, smoothing and variation.

    They are drawn once of `every` row, as many as there are for validation, and not more than SAMPLED.
    """
    task = recipe.task
    held_out = replace(corpus, splits={**corpus.splits, "train": corpus.splits["valid"]})
    most = min(SAMPLED, len(task.collator(recipe, held_out, model).pairs.lengths))
    collator, rows = task.unvaried(recipe, corpus, model, np.array(drawn(range(every), max(most, 1))))
    lengths = collator.pairs.lengths[rows].max(axis=1).tolist()
    groups = [rows[some] for some in by_length(lengths, recipe.train.batch_tokens)]

    def measured(model: nn.Module) -> float:
        objective, device = Objective(model, task.loss), next(model.parameters()).device
        total, targets = 0.0, 0
        for group in groups:
            batch = collator(group, np.random.default_rng(recipe.train.seed)).to(device)
            total, targets = total + float(objective(batch)), targets + batch.targets
        return total / max(targets, 1)

    return measured


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
    if not is_trained(out):
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
    if most is not None and recipe.decode.beam > most and "decode.beam" not in without_effect(recipe):
        raise ConfigurationError(f"decode.beam is {recipe.decode.beam}, but the vocabulary has {most} tokens: lower it")


def _write_setting(recipe: Recipe, out: Path, corpus: Corpus, model: nn.Module) -> None:
    """Write all of a run but its weights; refuse to resume with other data."""
    if is_trained(out) and (out / files.DATA).exists():
        before = read_json(out / files.DATA, files.DataFacts).checksums
        tokenizers = [tokenizer.to_json() for tokenizer in files.read_tokenizers(out)]
        if tokenizers != [each.to_json() for each in corpus.assets.tokenizers] or before != corpus.checksums:
            raise RunError(f"the data has changed since {out} was begun: to resume, it must be the same")
    try:
        files.write_setting(out, recipe, model, corpus)
    except OSError as error:
        raise TrainingError(f"{out} cannot be written to: {error.strerror or error}") from None
