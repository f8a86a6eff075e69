"""The run folder: what training writes and everything else reads. It moves freely between machines.

recipe.toml                what was asked for, with all defaults
tokenizer.json             or source.tokenizer.json and target.tokenizer.json
config.json                what the model is: family, arguments, labels
special_tokens.json        of the checkpoint that training started from, if the model writes
model.safetensors          its weights
valid.jsonl, test.jsonl    the examples that were kept out of training
sample.jsonl               some of the training examples, for a baseline, if the task has one
metrics.jsonl              every measurement of the training, one per line
checkpoints/               to resume from
log.txt, loss.png, environment.json, data.json
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from glassformer.data import Assets, Corpus
from glassformer.data.examples import write_examples
from glassformer.errors import ConfigurationError, RunError, TrainingError
from glassformer.interop.huggingface import JOINT, SEPARATE, write_tokenizers
from glassformer.interop.special_tokens import read_special_tokens, write_special_tokens
from glassformer.locking import take
from glassformer.recipe import Recipe, read_recipe, to_toml
from glassformer.runs import legacy
from glassformer.runs.describing import described, rebuilt
from glassformer.text import Tokenizer
from glassformer.training.checkpoints import load_weights, weights
from glassformer.writing import replacing, write_json, write_text

RECIPE, CONFIG, WEIGHTS = "recipe.toml", "config.json", "model.safetensors"
FORMAT = 3  # of config.json; 2 was that of Glassformer 0.1
LOCK = ".lock"  # there while a process trains
HELD_OUT, SAMPLE = ("valid", "test"), "sample.jsonl"


@contextmanager
def reserved(folder: Path) -> Iterator[None]:
    """A folder to train into, made if need be, for this process alone. If it is still empty in the end, it goes."""
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TrainingError(f"{folder} cannot be written to: {error.strerror or error}") from None
    lock = _lock(folder)
    try:
        yield
    finally:
        with suppress(OSError):
            if lock is not None:
                (folder / LOCK).unlink()
                os.close(lock)
            for each in made:
                each.rmdir()  # which fails where something was written


def _lock(folder: Path) -> int | None:
    try:
        return take(folder / LOCK)
    except BlockingIOError:
        raise RunError(f"{folder} is being trained by another process: choose another folder with --out") from None
    except OSError:
        return None  # on a file system without locks, training goes on without


def is_run(folder: Path) -> bool:
    """Whether a folder is one that training has made."""
    return (folder / RECIPE).is_file() and (folder / CONFIG).is_file()


def write_setting(folder: Path, recipe: Recipe, model: nn.Module, corpus: Corpus) -> None:
    """Write all of a run but its weights: recipe, tokenizers, configuration, held-out examples, environment."""
    assets, description = corpus.assets, described(model)  # which is refused, if at all, before anything is written
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / RECIPE, to_toml(recipe))
    write_tokenizers(list(dict.fromkeys(assets.tokenizers)), folder)
    if assets.special_tokens is not None:
        write_special_tokens(folder, assets.special_tokens)
    write_json(folder / CONFIG, {"format": FORMAT, "model": description, "labels": assets.labels})
    write_json(folder / "environment.json", environment())
    for split in HELD_OUT:
        write_examples(folder / f"{split}.jsonl", corpus.held_out(split))
    if corpus.sample is not None:
        write_text(folder / SAMPLE, corpus.sample.read_text(encoding="utf-8"))


def write_weights(folder: Path, model: nn.Module) -> None:
    """Write the weights to use, at once."""
    try:
        with replacing(folder / WEIGHTS) as new:
            save_file({name: tensor.cpu().contiguous() for name, tensor in weights(model).items()}, new)
    except (OSError, SafetensorError) as error:
        raise TrainingError(f"{folder / WEIGHTS} cannot be written: {error}; the checkpoints are intact") from None


@dataclass(frozen=True)
class RunFolder:
    """A run folder whose recipe and configuration have been read."""

    path: Path
    format: int
    recipe: Recipe
    model: dict[str, Any]  # the family and its arguments
    labels: list[str]

    def assets(self) -> Assets:
        """Its tokenizers, labels and special tokens."""
        tokenizers = read_tokenizers(self.path)
        if self.recipe.task.tokenizers and not tokenizers:
            raise RunError(f"{self.path} is damaged: {self.path / JOINT[0]}: No such file")
        return Assets(tokenizers, self.labels, read_special_tokens(self.path))

    def load_model(self) -> nn.Module:
        """Its model with its weights, in evaluation mode."""
        return load_model(self.path, self.model)


def read_run(folder: Path) -> RunFolder:
    """The recipe and the configuration in a run folder; one of Glassformer 0.1 is read as what it means today."""
    config = read_config(folder)
    old = config["format"] < FORMAT
    recipe = legacy.read_recipe(folder / RECIPE) if old else read_recipe(folder / RECIPE)
    model = legacy.upgraded_model(config["model"]) if old else config["model"]
    return RunFolder(folder, config["format"], recipe, model, config["labels"])


def read_config(folder: Path) -> dict[str, Any]:
    """A run's config.json: its format, model and labels."""
    if not folder.is_dir():
        raise RunError(f"{folder}: there is no such run folder")
    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        model = {"family": str(config["model"]["family"]), "arguments": dict(config["model"]["arguments"])}
        labels = config["labels"]
        if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
            raise ValueError("labels is not a list of texts")
        return {"format": int(config["format"]), "model": model, "labels": labels}
    except OSError as error:
        raise RunError(f"{folder} is not a run folder: {CONFIG} cannot be read: {error.strerror}") from None
    except KeyError as error:
        raise RunError(f"{folder / CONFIG} is damaged: it lacks {error}") from None
    except (ValueError, TypeError) as error:
        raise RunError(f"{folder / CONFIG} is damaged: {error}") from None


def read_tokenizers(folder: Path) -> tuple[Tokenizer, ...]:
    """A run's tokenizers, of source and target: the same where they share a vocabulary; none if it reads no text."""
    names = [name for name in (*JOINT, *SEPARATE) if (folder / name).is_file()]
    found = tuple(Tokenizer.load(folder / name, complete=False) for name in names)  # as saved: nothing is missing
    return found * 2 if len(found) == 1 else found


def load_model(folder: Path, description: dict[str, Any]) -> nn.Module:
    """The model of a description with the weights in a folder, in evaluation mode."""
    try:
        model = rebuilt(description)
    except (ConfigurationError, KeyError, TypeError, AttributeError) as error:
        raise RunError(f"{folder / CONFIG} is damaged: {error}") from None
    path = folder / WEIGHTS
    try:
        load_weights(model, load_file(path))
    except FileNotFoundError:
        raise RunError(
            f"{folder} has no {WEIGHTS}: its training has not ended; continue it with train --resume"
        ) from None
    except (OSError, SafetensorError) as error:
        raise RunError(f"{path} is damaged: {error}") from None
    except TrainingError as error:
        raise RunError(f"{path} does not belong to {folder / CONFIG}: {error}") from None
    return model.eval()


def environment() -> dict[str, Any]:
    """Facts about the machine and the libraries, for whoever wants to reproduce the run."""
    packages = ("glassformer", "torch", "tokenizers", "safetensors", "numpy")
    return {
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "processors": os.cpu_count(),
        "accelerator": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "packages": {name: _version(name) for name in packages},
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except ImportError:
        return "unknown"
