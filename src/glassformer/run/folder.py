"""The run folder: what training writes and everything else reads. It moves freely between machines.

recipe.toml                what was asked for, all defaults spelled out
tokenizer.json             or source.tokenizer.json and target.tokenizer.json
config.json                what the model is: family, numbers, vocabularies
habits.json                the special tokens of the checkpoint that it began with, if it writes
model.safetensors          its weights
valid.jsonl, test.jsonl    the pairs that were kept out of training
sample.jsonl               of a classification: some of the texts in training, for a baseline
metrics.jsonl              every measurement of the training, one a line
checkpoints/               to resume from
log.txt, loss.png, environment.json, data.json
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from glassformer.errors import ConfigurationError, RunError, TrainingError
from glassformer.locking import take
from glassformer.recipe import Recipe
from glassformer.recipes import read_recipe, to_toml
from glassformer.run.describing import described, rebuilt
from glassformer.text import Tokenizer
from glassformer.training.checkpoints import load_weights, weights
from glassformer.writing import replacing

RECIPE, CONFIG, WEIGHTS, METRICS = "recipe.toml", "config.json", "model.safetensors", "metrics.jsonl"
LOCK = ".lock"  # there while somebody trains
HELD_OUT, SAMPLE = ("valid", "test"), "sample"
JOINT, SEPARATE = ("tokenizer.json",), ("source.tokenizer.json", "target.tokenizer.json")


def write_text(path: Path, text: str) -> None:
    """Write a file at once: under a temporary name, flushed, then renamed."""
    with replacing(path) as new:
        new.write_text(text, encoding="utf-8")


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
        return None  # where nothing can be locked, training goes on without


def check_free(folder: Path, force: bool) -> None:
    """Refuse to write into a folder that holds something, unless forced; a trained run is never written over."""
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{folder} is a file: choose a folder")
    if is_run(folder):
        raise RunError(f"{folder} holds a run that was trained: choose another folder")
    if not force and folder.exists() and any(folder.iterdir()):
        raise RunError(f"{folder} is not empty: choose another folder, or write over what it holds with --force")


def write_setting(
    folder: Path, recipe: Recipe, model: nn.Module, tokenizers: Sequence[Tokenizer], labels: list[str]
) -> None:
    """Write all of a run but its weights: recipe, tokenizers, model configuration, environment."""
    config = {"format": 2, "model": described(model), "labels": labels}
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / RECIPE, to_toml(recipe))
    joint = len({id(tokenizer) for tokenizer in tokenizers}) == 1
    for name, tokenizer in zip(JOINT if joint else SEPARATE, tokenizers, strict=False):
        tokenizer.save(folder / name)
    write_text(folder / CONFIG, json.dumps(config, indent=2) + "\n")
    write_text(folder / "environment.json", json.dumps(environment(), indent=2) + "\n")


def write_weights(folder: Path, model: nn.Module) -> None:
    """Write the weights to use, at once."""
    try:
        with replacing(folder / WEIGHTS) as new:
            save_file({name: tensor.cpu().contiguous() for name, tensor in weights(model).items()}, new)
    except (OSError, SafetensorError) as error:
        raise TrainingError(f"{folder / WEIGHTS} cannot be written: {error}; the checkpoints are intact") from None


def read_config(folder: Path) -> dict[str, Any]:
    """A run's config.json."""
    if not folder.is_dir():
        raise RunError(f"{folder}: there is no such run folder")
    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        model = config["model"]
        return {"family": str(model["family"]), "arguments": dict(model["arguments"]), "labels": list(config["labels"])}
    except OSError as error:
        raise RunError(f"{folder} is not a run folder: {CONFIG} cannot be read: {error.strerror}") from None
    except KeyError as error:
        raise RunError(f"{folder / CONFIG} is damaged: it lacks {error}") from None
    except (ValueError, TypeError) as error:
        raise RunError(f"{folder / CONFIG} is damaged: {error}") from None


def is_run(folder: Path) -> bool:
    """Whether a folder is one that training has made."""
    return (folder / RECIPE).is_file() and (folder / CONFIG).is_file()


def read_tokenizers(folder: Path) -> tuple[Tokenizer, Tokenizer]:
    """A run's tokenizers, of source and target: one and the same where they share a vocabulary."""
    if (folder / JOINT[0]).is_file():
        joint = Tokenizer.load(folder / JOINT[0], complete=False)  # as it was saved: nothing is missing
        return joint, joint
    source, target = (Tokenizer.load(folder / name, complete=False) for name in SEPARATE)
    return source, target


def read_model(folder: Path) -> nn.Module:
    """A run's model with its weights, in evaluation mode."""
    try:
        model = rebuilt(read_config(folder))
    except (ConfigurationError, KeyError, TypeError) as error:
        raise RunError(f"{folder / CONFIG} is damaged: {error}") from None
    path = folder / WEIGHTS
    try:
        load_weights(model, load_file(path))
    except FileNotFoundError:
        raise RunError(f"{folder} has no {WEIGHTS}: its training has not ended; go on with train --resume") from None
    except (OSError, SafetensorError) as error:
        raise RunError(f"{path} is damaged: {error}") from None
    except TrainingError as error:
        raise RunError(f"{path} does not belong to {folder / CONFIG}: {error}") from None
    return model.eval()


def write_pairs(folder: Path, split: str, pairs: Sequence[tuple[str, str]]) -> None:
    """Write the texts of a split that was kept out of training."""
    rows = ({"source": source, "target": target} for source, target in pairs)
    write_text(folder / f"{split}.jsonl", "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def read_pairs(folder: Path, split: str) -> list[tuple[str, str]]:
    """The texts of a split that was kept out of training."""
    if split not in (*HELD_OUT, SAMPLE):
        raise RunError(f"a run keeps its {' and '.join(HELD_OUT)} pairs, not {split!r}")
    path = folder / f"{split}.jsonl"
    try:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
        return [(row["source"], row["target"]) for row in rows]
    except OSError as error:
        raise RunError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path} is damaged: {error}") from None


def read_run_recipe(folder: Path) -> Recipe:
    """A run's recipe."""
    return read_recipe(folder / RECIPE)


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
