"""The run folder: what training writes and everything else reads. It moves freely between machines.

recipe.toml                what was asked for, with all defaults
tokenizer.json             or source.tokenizer.json and target.tokenizer.json
config.json                what the model is: family, arguments, labels
special_tokens.json        of the checkpoint that training started from, if the model writes
model.safetensors          its weights
checksums.json             the SHA-256 of the files above but the recipe, and of the examples below
valid.jsonl, test.jsonl    the examples that were kept out of training
sample.jsonl               some of the training examples, for a baseline, if the task has one
data.json                  where the examples came from, and checksums of what they were made into
metrics.jsonl              every measurement of the training, one per line
budget.json                the speed of the training, from which its number of steps follows, with train.minutes
checkpoints/               to resume from
report.html, loss.png      what the command `train` makes of all this in the end, and of an evaluation
tensorboard/               the measurements, samples and attention of each validation, if TensorBoard is installed
log.txt, environment.json

config.json is written first, recipe.toml last: a folder with both is a run that has begun, one with our config.json
alone is a beginning that was cut off, and is begun again.
"""

from __future__ import annotations

import os
import platform
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from glassformer.data import Assets, Corpus
from glassformer.data.examples import to_line
from glassformer.errors import ConfigurationError, RunError, TrainingError
from glassformer.interop.huggingface import JOINT, SEPARATE
from glassformer.interop.special_tokens import SPECIAL_TOKENS, read_special_tokens
from glassformer.locking import take
from glassformer.parts import adapt, merged
from glassformer.parts.linear import kernels
from glassformer.parts.lora import lora_parts
from glassformer.recipe import Recipe, read_recipe, to_toml
from glassformer.registry import FAMILIES
from glassformer.runs import legacy
from glassformer.runs.describing import Description, described, rebuilt
from glassformer.runs.rounding import restored, rounded
from glassformer.stopping import at_the_end, undivided
from glassformer.tasks.run import HELD_OUT
from glassformer.text import Tokenizer
from glassformer.training import resolve
from glassformer.training.checkpoints import NEWEST, Checkpoints, Selection, load_weights, not_finite, weights
from glassformer.writing import CHECKSUMS, damage, read_json, replacing, sweep, to_json, write_checksums, write_text

RECIPE, CONFIG, WEIGHTS = "recipe.toml", "config.json", "model.safetensors"
FORMAT = 3  # of config.json; 2 was that of Glassformer 0.1
LOCK = ".lock"  # there while a process trains
DATA, SAMPLE, ENVIRONMENT = "data.json", "sample.jsonl", "environment.json"
OPTIONAL = (*JOINT, *SEPARATE, SPECIAL_TOKENS, SAMPLE)  # files that some runs have


@dataclass(frozen=True)
class Config:
    """What config.json holds."""

    format: int
    model: Description
    labels: list[str]


@dataclass(frozen=True)
class DataFacts:
    """What is read of data.json."""

    checksums: dict[str, list[int]]


@contextmanager
def reserved(folder: Path) -> Iterator[None]:
    """A folder to train into, made if need be, for this process alone. If it is still empty in the end, it goes.

    What processes that were killed have left unfinished in it is removed.
    """
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    with ExitStack() as stack:
        for each in reversed(made):
            stack.enter_context(at_the_end(lambda each=each: _remove_empty(each)))  # type: ignore[misc]
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise TrainingError(f"{folder} cannot be written to: {error.strerror or error}") from None
        with undivided():
            lock = _lock(folder)
            if lock is not None:
                stack.enter_context(at_the_end(lambda: _unlock(folder, lock)))
        if lock is not None:
            for each in (folder, *(path for path in folder.iterdir() if path.is_dir())):
                sweep(each)
        yield


def _remove_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()


def _unlock(folder: Path, lock: int) -> None:
    with suppress(OSError):
        (folder / LOCK).unlink()
    os.close(lock)


def _lock(folder: Path) -> int | None:
    try:
        return take(folder / LOCK)
    except BlockingIOError:
        raise RunError(f"{folder} is being trained by another process: choose another folder with --out") from None
    except OSError:
        return None  # on a file system without locks, training goes on without


def is_cut_off(folder: Path) -> bool:
    """Whether a folder holds the beginning of a run that was killed before it was complete."""
    try:
        return not (folder / RECIPE).exists() and read_json(folder / CONFIG, Config).format == FORMAT
    except RunError:
        return False


def write_setting(folder: Path, recipe: Recipe, model: nn.Module, corpus: Corpus) -> None:
    """Write all of a run but its weights; of one that has begun, the same again, with the recipe of today."""
    assets = corpus.assets
    config = Config(FORMAT, described(model), assets.labels)  # which is refused, if at all, before anything is written
    tokenizers = [each.to_json() for each in dict.fromkeys(assets.tokenizers)]
    texts = {CONFIG: to_json(asdict(config))}
    texts |= dict(zip(SEPARATE if len(tokenizers) == 2 else JOINT, tokenizers, strict=False))
    if assets.special_tokens is not None:
        texts[SPECIAL_TOKENS] = to_json(asdict(assets.special_tokens))
    for split in HELD_OUT:
        texts[f"{split}.jsonl"] = "".join(map(to_line, corpus.held_out(split)))
    if corpus.sample is not None:
        texts[SAMPLE] = corpus.sample.read_text(encoding="utf-8")
    texts[DATA] = to_json({**corpus.report.to_dict(), "checksums": corpus.checksums})
    texts[ENVIRONMENT] = to_json(environment(recipe.train.device))
    texts[RECIPE] = to_toml(recipe)
    for name in (CHECKSUMS, *OPTIONAL):  # they are written again, or another recipe has left them
        if name not in texts:
            (folder / name).unlink(missing_ok=True)
    for name, text in texts.items():
        write_text(folder / name, text)


def write_weights(folder: Path, model: nn.Module, small: bool = False) -> None:
    """Write the weights to use, at once, `small` with rounded matrices, and the checksums of all that matters."""
    tensors = {name: tensor.cpu().contiguous() for name, tensor in weights(model).items()}
    if (name := not_finite(tensors)) is not None:
        raise TrainingError(
            f"{folder}: the training has ended with weights that are not finite, {name} for one: they are not written; "
            "train again with a lower train.lr or a longer train.warmup"
        )
    held_out = [f"{split}.jsonl" for split in HELD_OUT]
    try:
        (folder / CHECKSUMS).unlink(missing_ok=True)
        with replacing(folder / WEIGHTS) as new:
            save_file(rounded(tensors) if small else tensors, new)
        found = [name for name in (CONFIG, WEIGHTS, *OPTIONAL, *held_out) if (folder / name).is_file()]
        write_checksums(folder, found)
    except (OSError, SafetensorError) as error:
        raise TrainingError(f"{folder / WEIGHTS} cannot be written: {error}; the checkpoints are intact") from None


@dataclass(frozen=True)
class RunFolder:
    """A run folder whose recipe and configuration have been read."""

    path: Path
    format: int
    recipe: Recipe
    model: Description
    labels: list[str]

    def assets(self) -> Assets:
        """Its tokenizers, labels and special tokens."""
        tokenizers = read_tokenizers(self.path)
        if self.recipe.task.tokenizers and not tokenizers:
            raise RunError(f"{self.path} is damaged: {self.path / JOINT[0]}: No such file")
        known = max(self.model.arguments.get(key) or 0 for key in ("vocabulary", "target_vocabulary"))
        if any(tokenizer.size > known for tokenizer in tokenizers):
            raise RunError(
                f"{self.path}: the tokenizer has more tokens than the model of {CONFIG}: restore its own files"
            )
        return Assets(tokenizers, self.labels, read_special_tokens(self.path))

    def load_model(self, checkpoint: str | int | None = None) -> nn.Module:
        """Its model in evaluation mode, with the weights that training ended with, or those of a checkpoint.

        A checkpoint is a step, "best" or "last". Of an unfinished run those are used that training would end with now.
        """
        check_whole(self.path, but=None if checkpoint is None else WEIGHTS)
        if checkpoint is None and (self.path / WEIGHTS).is_file():
            return self._with(self.path / WEIGHTS, lambda: restored(load_file(self.path / WEIGHTS)))
        selection = self._selected(checkpoint)
        state = selection.checkpoints[0].state()
        steps, used = state.get("steps"), f"{selection.name}, step {selection.step:,}"
        begun = f"{self.path} is unfinished" if checkpoint is None else f"{self.path}"
        warnings.warn(f"{begun}: using {used}" + (f" of {steps:,}" if steps else ""), stacklevel=3)
        return self._with(selection.checkpoints[0].path, selection.weights)

    def _selected(self, wanted: str | int | None) -> Selection:
        """The checkpoints to use."""
        checkpoints, average = Checkpoints(self.path), self.recipe.train.average if wanted is None else 0
        known, newest = checkpoints.all(), checkpoints.latest_good()
        if newest is None:
            weights = f"{WEIGHTS} and no " if wanted is None else ""
            raise RunError(f"{self.path} has no {weights}checkpoint: continue its training with train --resume")
        best = newest.state()["best"]
        if wanted in (None, "best"):
            return checkpoints.for_use(average, best[1] if best else None)
        if wanted == "last":
            return Selection(NEWEST, (newest,))
        if not str(wanted).isdecimal():
            raise RunError(f'checkpoint is "{wanted}": expected a step, best or last')
        found = checkpoints.at(int(wanted))
        if found not in known:
            steps = ", ".join(f"{each.step}" for each in known)
            raise RunError(f"{self.path} has no checkpoint of step {wanted}: it has those of {steps}")
        if (wrong := found.damage()) is not None:
            raise RunError(f"the checkpoint {found.path} is damaged: {wrong}; choose another one")
        return Selection("its checkpoint", (found,))

    def _with(self, place: Path, read: Callable[[], dict[str, Tensor]]) -> nn.Module:
        """Its model with weights from a place; what LoRA has learned is merged into the others."""
        try:
            tensors = read()
            model = self._made(tensors)
            load_weights(model, tensors)
        except ConfigurationError as error:
            raise RunError(f"{self.path / CONFIG} is damaged: {error}") from None
        except (OSError, SafetensorError) as error:
            raise RunError(f"{place} is damaged: {error}") from None
        except TrainingError as error:
            raise RunError(f"{place} does not belong to {self.path / CONFIG}: {error}") from None
        return (merged(model) if lora_parts(model) else model).eval()

    def _made(self, tensors: dict[str, Tensor]) -> nn.Module:
        """Its model with new weights; with adapters, if there are weights for them."""
        if not any(".adapters." in name for name in tensors):
            return rebuilt(self.model)
        tune, arguments = self.recipe.tune, self.model.arguments
        if "tie_output" in arguments and not any(re.fullmatch(r"head\.(\d+\.)?weight", name) for name in tensors):
            # Only when it is merged, an adapted head is no longer the embedding.
            arguments = {key: value for key, value in arguments.items() if key != "scaled"} | {"tie_output": True}
        model = rebuilt(Description(self.model.family, arguments))
        return adapt(model, tune.rank, tune.alpha, tune.dropout, tune.targets)


def check_whole(folder: Path, but: str | None = None) -> None:
    """Refuse a model with files that are not as they were written; a folder without checksums is not checked."""
    if (wrong := damage(folder, lambda name: not name.endswith(".jsonl") and name != but)) is not None:
        raise RunError(f"{folder} is damaged: {wrong}; restore that file from a copy, or make the run again")


def read_run(folder: Path) -> RunFolder:
    """The recipe and the configuration in a run folder; one of Glassformer 0.1 is read as what it means today."""
    config = read_config(folder)
    old = config.format < FORMAT
    if not (folder / RECIPE).is_file():
        raise RunError(f"{folder} has no {RECIPE}: its training has not begun; begin it with train")
    recipe = legacy.read_recipe(folder / RECIPE) if old else read_recipe(folder / RECIPE)
    model = legacy.upgraded_model(config.model) if old else config.model
    answer = recipe.task.answer
    answers = FAMILIES[model.family].answers if model.family in FAMILIES else (answer,)
    if answer not in answers or model.arguments.get("answer", answer) != answer:
        raise RunError(
            f"{folder / RECIPE} is a recipe for {recipe.task.kind}, but the {model.family} of {folder / CONFIG} is for "
            "another task: restore the run's own recipe"
        )
    return RunFolder(folder, config.format, recipe, model, config.labels)


def read_config(folder: Path) -> Config:
    """A run's config.json."""
    if not folder.is_dir():
        raise RunError(f"{folder}: there is no such run folder")
    if not (folder / CONFIG).is_file():
        raise RunError(f"{folder} is not a run folder: it has no {CONFIG}")
    return read_json(folder / CONFIG, Config)


def read_tokenizers(folder: Path) -> tuple[Tokenizer, ...]:
    """A run's tokenizers, of source and target: the same where they share a vocabulary; none if it reads no text."""
    names = [name for name in (*JOINT, *SEPARATE) if (folder / name).is_file()]
    found = tuple(Tokenizer.load(folder / name, complete=False) for name in names)  # as saved: nothing is missing
    return found * 2 if len(found) == 1 else found


def check_finite(model: nn.Module, place: object) -> None:
    """Refuse a model with weights that are not finite: all its answers would be wrong."""
    if (name := not_finite(dict(model.named_parameters()))) is not None:
        raise RunError(f"{place}: its weights are damaged: {name} holds numbers that are not finite")


def environment(device: str) -> dict[str, Any]:
    """Facts about the machine and the libraries, for whoever wants to reproduce the run."""
    packages = ("glassformer", "torch", "tokenizers", "safetensors", "numpy")
    kind = resolve(device).type
    return {
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "processors": os.cpu_count(),
        "accelerator": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "device": kind,
        "kernels": kernels() if kind == "cpu" else None,  # elsewhere nothing has to be compiled for them
        "packages": {name: _version(name) for name in packages},
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except ImportError:
        return "unknown"
