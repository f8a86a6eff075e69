"""From a recipe to a run: prepare the data, train the model, write the folder."""

from __future__ import annotations

import json
import os
import warnings
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from glassformer.data import Batches
from glassformer.errors import DataError, RunError, TrainingError
from glassformer.evaluation import check_rouge
from glassformer.parts import adapt, merged
from glassformer.pretrained import save_lora
from glassformer.recipe import Recipe, Tune
from glassformer.recipes import anchored, same
from glassformer.run import folder as files
from glassformer.run.building import build
from glassformer.run.embedding import fill
from glassformer.run.kinds import KINDS, Corpus, Use
from glassformer.run.telling import telling
from glassformer.training import Checkpoints, Trainer
from glassformer.training.distribution import Distribution, distribution
from glassformer.training.tuning import choose

DATA_REPORT = "data.json"
ADAPTER = "adapter"  # the folder of what LoRA has learned, as `peft` has it


class Listener(Protocol):
    """Somebody who wants to know how it goes: a progress bar, a test, nobody."""

    def stage(self, name: str, done: int, total: int | None) -> None:
        """Preparation has come so far."""
        ...

    def prepared(self, prepared: Corpus, model: nn.Module) -> None:
        """The data is ready, the model is built."""
        ...

    def say(self, line: str) -> None:
        """Something is worth a line."""
        ...

    def tick(self, record: dict[str, Any]) -> None:
        """A step was taken."""
        ...

    def log(self, record: dict[str, Any]) -> None:
        """Something was measured."""
        ...


class Silence:
    """A listener who does not care."""

    def stage(self, name: str, done: int, total: int | None) -> None:
        """Nothing."""

    def prepared(self, prepared: Corpus, model: nn.Module) -> None:
        """Nothing."""

    def say(self, line: str) -> None:
        """Nothing."""

    def tick(self, record: dict[str, Any]) -> None:
        """Nothing."""

    def log(self, record: dict[str, Any]) -> None:
        """Nothing."""


def cache_folder() -> Path:
    """Where prepared data is kept: $GLASSFORMER_CACHE, or the user's cache folder."""
    chosen = os.environ.get("GLASSFORMER_CACHE")
    return Path(chosen) if chosen else Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "glassformer"


def train(
    recipe: Recipe,
    out: Path,
    base: Path | None = None,
    resume: bool = False,
    listener: Listener | None = None,
) -> Use:
    """Train what the recipe says into the folder `out`; `base` is where the recipe's paths start from."""
    listener = Silence() if listener is None else listener
    recipe = anchored(recipe, base or Path.cwd())
    if recipe.train.watch.startswith("rouge"):
        check_rouge()
    with distribution(recipe.train.device, recipe.train.strategy) as place, ExitStack() as held:
        place.alone(lambda: _check_out(recipe, out, resume))
        place.alone(lambda: held.enter_context(files.reserved(out)))
        prepare = KINDS[recipe.task.kind].prepare
        # Rank 0 prepares, so that the others find everything in the cache.
        place.alone(lambda: prepare(recipe, Path.cwd(), cache_folder(), listener.stage))
        prepared = prepare(recipe, Path.cwd(), cache_folder(), None)
        pairs = prepared.splits["train"]
        if not len(pairs):
            raise DataError(f"no pair is left to train on: {prepared.report.sentence()}")
        torch.manual_seed(recipe.train.seed)
        model = build(recipe, *(each.size for each in prepared.tokenizers), classes=len(prepared.labels))
        model = _tuned(model, recipe.tune)
        filled = None
        if recipe.model.embeddings is not None:
            filled = fill(model, recipe.model, prepared.tokenizers[0], pairs)
        if place.main:
            listener.prepared(prepared, model)
            if filled is not None:
                listener.say(str(filled))
        place.alone(lambda: _write_setting(recipe, out, prepared, model, resume))
        return _learn(recipe, out, prepared, model, place, resume, listener)


def _tuned(model: nn.Module, section: Tune) -> nn.Module:
    """The model, of which that learns which the recipe says."""
    if section.mode == "lora":
        model = adapt(model, section.rank, section.alpha, section.dropout, section.targets)
    choose(model, section.mode)
    return model


def _learn(
    recipe: Recipe,
    out: Path,
    prepared: Corpus,
    model: nn.Module,
    place: Distribution,
    resume: bool,
    listener: Listener,
) -> Use:
    """The training itself, and the weights that come of it."""
    kind, options = KINDS[recipe.task.kind], recipe.train
    collator = kind.collator(recipe, prepared, model)
    batches = Batches(collator.pairs, options.batch_tokens, collator, options.seed)
    if options.tokens is not None:
        steps = batches.steps_for(options.tokens, options.accumulate * place.world)
        options = options.model_copy(update={"steps": steps})
    use = kind.use(recipe, model, prepared, out)
    examples = prepared.held_out("valid")

    def validate(model: nn.Module) -> dict[str, float]:
        return use.with_model(model).measure(examples, options.validate_sentences)

    with telling(out, _saved(out) if resume else 0, listener.log) if place.main else nullcontext() as tell:
        watching = validate if examples else None
        unfreeze = recipe.tune.every if recipe.tune.mode == "unfreeze" else 0
        trainer = Trainer(model, batches, options, out, watching, tell, place, listener.tick, kind.loss, unfreeze)
        trainer.run(resume)
    use.model = trainer.model.eval()
    place.alone(lambda: _keep(use, out, recipe.tune))
    return use


def _keep(use: Use, out: Path, section: Tune) -> None:
    """Write the weights to use; what LoRA has learned is written by itself too, and added to the others."""
    if section.mode == "lora":
        save_lora(use.model, out / ADAPTER)
        use.model = merged(use.model).eval()
    files.write_weights(out, use.model)


def _saved(out: Path) -> int:
    """The step that training goes on from."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the trainer names damaged checkpoints
        latest = Checkpoints(out).latest_good()
    return latest.step if latest else 0


def _check_out(recipe: Recipe, out: Path, resume: bool) -> None:
    """Refuse to train over another run, to resume with another model, or to begin where nothing can be written."""
    there = next(place for place in (out, *out.absolute().parents) if place.exists())
    if not there.is_dir():
        raise RunError(f"{out} cannot be a run folder: {there} is a file")
    if not os.access(there, os.W_OK):
        raise TrainingError(f"{out} cannot be written to: {there} is not yours to write in")
    if not (out / files.CONFIG).exists():
        if resume:
            raise RunError(f"{out}: there is nothing to resume; leave out --resume to begin")
        if (out / files.RECIPE).exists():
            raise RunError(f"{out} holds a {files.RECIPE} but no run: choose another folder with --out")
        return
    if not resume:
        raise RunError(f"{out} already holds a run: resume it with --resume, or choose another folder with --out")
    before = files.read_run_recipe(out)
    for part in ("task", "source", "data", "tokenizer", "model", "tune"):
        if not same(getattr(before, part), getattr(recipe, part)):
            raise RunError(f"{out} was trained with another [{part}]: resume with its own recipe, {out / files.RECIPE}")
    if before.train.optimiser != recipe.train.optimiser:
        raise RunError(f"{out} was trained with another train.optimiser, {before.train.optimiser}: resume with it")


def _write_setting(recipe: Recipe, out: Path, prepared: Corpus, model: nn.Module, resume: bool) -> None:
    """Write all of a run but its weights; refuse to resume with other data."""
    facts, path = {**prepared.report.to_dict(), "checksums": prepared.checksums}, out / DATA_REPORT
    now = prepared.tokenizers
    try:
        if resume and path.exists():
            tokenizers = [tokenizer.to_json() for tokenizer in (files.read_tokenizers(out) if now else ())]
            before = json.loads(path.read_text(encoding="utf-8"))["checksums"]
            if tokenizers != [each.to_json() for each in now] or before != prepared.checksums:
                raise RunError(f"the data has changed since {out} was begun: to resume, it must be the same")
        files.write_setting(out, recipe, model, now, prepared.labels)
        for split in files.HELD_OUT:
            KINDS[recipe.task.kind].keep(out, split, prepared)
        KINDS[recipe.task.kind].note(out, prepared)
        files.write_text(path, json.dumps(facts, indent=2) + "\n")
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise RunError(f"{path} is damaged: {error}") from None
    except OSError as error:
        raise TrainingError(f"{out} cannot be written to: {error.strerror or error}") from None
