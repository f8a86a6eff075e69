"""Checkpoints: the whole state of a training, safe on disk, so that a killed run goes on as if nothing had been.

    checkpoints/step-00000500/
        model.safetensors       the weights, tied ones once
        optimiser.safetensors   the optimiser's averages, by parameter
        average.safetensors     the moving average of the weights, where there is one
        state.json              step, place in the data, random numbers, counters, metrics
        checksums.json          SHA-256 of each of these

A checkpoint is written under a temporary name, flushed to the disk, and renamed: it is there whole or not at all.
Nothing is ever unpickled.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from glassformer.errors import TrainingError
from glassformer.training.distribution import sharded, whole

State = dict[str, Any]
CHECKSUMS = "checksums.json"


@dataclass(frozen=True)
class Checkpoint:
    """One saved state; its tensors are read when asked for."""

    path: Path

    @property
    def step(self) -> int:
        """The step after which it was saved."""
        return int(self.path.name.removeprefix("step-"))

    def tensors(self, name: str) -> dict[str, Tensor]:
        """The tensors of one of its files: model, optimiser or average."""
        return load_file(self.path / f"{name}.safetensors")

    def has(self, name: str) -> bool:
        """Whether it has such a file of tensors."""
        return (self.path / f"{name}.safetensors").is_file()

    def state(self) -> State:
        """Everything that is no tensor."""
        return json.loads((self.path / "state.json").read_text(encoding="utf-8"))  # type: ignore[no-any-return]

    def weights(self) -> dict[str, Tensor]:
        """The weights to use: the moving average where there is one."""
        model = self.tensors("model")
        return model | self.tensors("average") if self.has("average") else model

    def damage(self) -> str | None:
        """What is wrong with its files, in words; None where all is well."""
        try:
            sums = json.loads((self.path / CHECKSUMS).read_text(encoding="utf-8"))
            if not {"model.safetensors", "state.json"} <= sums.keys():
                return f"{CHECKSUMS} is incomplete"
            for name, expected in sums.items():
                if _digest(self.path / name) != expected:
                    return f"{name} does not have its checksum"
        except FileNotFoundError as error:
            return f"{Path(error.filename).name} is missing"
        except (OSError, ValueError, AttributeError) as error:
            return f"{CHECKSUMS} cannot be read ({error})"
        return None


class Checkpoints:
    """The checkpoints of a run, the last `keep` of them and the best."""

    def __init__(self, folder: Path, keep: int = 3) -> None:
        self.folder, self.keep = folder / "checkpoints", keep

    def all(self) -> list[Checkpoint]:
        """All checkpoints, oldest first."""
        found = [path for path in self.folder.glob("step-*") if path.name[5:].isdecimal() and path.is_dir()]
        return [Checkpoint(path) for path in sorted(found, key=lambda path: int(path.name[5:]))]

    def at(self, step: int) -> Checkpoint:
        """The checkpoint of a step."""
        return Checkpoint(self.folder / f"step-{step:08d}")

    def good(self) -> Iterator[Checkpoint]:
        """The checkpoints that are whole, newest first; damaged ones are named in a warning and passed over."""
        for checkpoint in reversed(self.all()):
            damage = checkpoint.damage()
            if damage is None:
                yield checkpoint
            else:
                warnings.warn(f"the checkpoint {checkpoint.path} is damaged: {damage}; it is passed over", stacklevel=2)

    def latest_good(self) -> Checkpoint | None:
        """The newest checkpoint that is whole."""
        return next(self.good(), None)

    def save(
        self, step: int, tensors: Mapping[str, Mapping[str, Tensor]], state: State, best: int | None
    ) -> Checkpoint:
        """Write a checkpoint of so many files of tensors, then delete those no longer needed.

        A full disk or a folder that cannot be written to is a TrainingError; what was there stays as it was.
        """
        final = self.at(step)
        with self._careful(final.path):
            self.folder.mkdir(parents=True, exist_ok=True)
            for left in self.folder.glob(".step-*"):  # of a process that was killed while it wrote
                shutil.rmtree(left)
            new = final.path.with_name(f".{final.path.name}")
            new.mkdir()
            for name, values in tensors.items():
                plain = {key: value.detach().cpu().contiguous() for key, value in values.items()}
                save_file(plain, new / f"{name}.safetensors")
            _write(new / "state.json", json.dumps(state, indent=1, allow_nan=True))
            sums = {path.name: _digest(path) for path in sorted(new.iterdir())}
            _write(new / CHECKSUMS, json.dumps(sums, indent=1))
            for path in [*new.iterdir(), new]:
                _flush(path)
            if final.path.exists():  # a damaged one that was passed over
                final.path.replace(new.with_name(f"{new.name}-old"))
            new.replace(final.path)
            _flush(self.folder)
            shutil.rmtree(new.with_name(f"{new.name}-old"), ignore_errors=True)
        for old in self.all()[: -self.keep]:
            if old.step not in (best, step):
                shutil.rmtree(old.path, ignore_errors=True)
        return final

    @contextmanager
    def _careful(self, path: Path) -> Iterator[None]:
        try:
            yield
        except (OSError, SafetensorError) as error:
            for left in self.folder.glob(".step-*"):
                shutil.rmtree(left, ignore_errors=True)
            last = next((one.path.name for one in reversed(self.all())), None)
            intact = "nothing was saved before" if last is None else f"{last} is intact: free some space and resume"
            raise TrainingError(f"the checkpoint {path} cannot be written: {error}; {intact}") from error


def weights(model: nn.Module) -> dict[str, Tensor]:
    """All weights of a model by name, a tied one once, sharded ones whole (so every rank must ask)."""
    once: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        once.setdefault(id(tensor), (name, tensor))
    return {name: whole(tensor.detach()) for name, tensor in once.values()}


@torch.no_grad()
def load_weights(model: nn.Module, saved: Mapping[str, Tensor]) -> None:
    """Put the weights that `weights` returned into a model of the same make."""
    own = model.state_dict(keep_vars=True)
    names = weights(model).keys()
    if missing := sorted(names - saved.keys()):
        raise TrainingError(f"the saved weights lack {missing[0]} (and {len(missing) - 1} more): another model's")
    if extra := sorted(saved.keys() - own.keys()):
        raise TrainingError(f"the saved weights hold {extra[0]} (and {len(extra) - 1} more): another model's")
    for name in names:
        if saved[name].shape != own[name].shape:
            shapes = f"{tuple(saved[name].shape)}, but the model's has {tuple(own[name].shape)}"
            raise TrainingError(f"the saved weight {name} has the shape {shapes}")
        own[name].copy_(sharded(saved[name].to(own[name].dtype), own[name]))


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def _flush(path: Path) -> None:
    """Wait until the disk has it."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
