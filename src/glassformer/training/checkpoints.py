"""Checkpoints: the whole state of training on disk, so that a killed run continues with identical results.

    checkpoints/step-00000500/
        model.safetensors       the weights; tied weights once
        optimiser.safetensors   the optimiser's averages, by parameter
        average.safetensors     the moving average of the weights, with train.ema
        state.json              step, position in the data, random states, counters, metrics; why it was saved
        checksums.json          the SHA-256 of each of these files

A checkpoint is written under a temporary name, flushed to disk, and renamed: it exists completely or not at all.
Nothing is ever unpickled.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from glassformer.errors import TrainingError
from glassformer.files import SETTINGS, regular
from glassformer.stopping import at_the_end
from glassformer.training.averaging import mean
from glassformer.training.distribution import sharded, whole
from glassformer.writing import CHECKSUMS, damage, flush, read_json, remove, sweep, unfinished, write_checksums

State = dict[str, Any]
BEST, NEWEST = "its best checkpoint", "its newest checkpoint"
NEEDED = ("model.safetensors", "optimiser.safetensors", "state.json")


@dataclass(frozen=True)
class Checkpoint:
    """One saved state; its tensors are read on request."""

    path: Path

    @property
    def step(self) -> int:
        """The step after which it was saved."""
        return int(self.path.name.removeprefix("step-"))

    def tensors(self, name: str) -> dict[str, Tensor]:
        """The tensors of the file `name`: model, optimiser or average."""
        return load_file(self.path / f"{name}.safetensors")

    def has(self, name: str) -> bool:
        """Whether it has a file of tensors called `name`."""
        return (self.path / f"{name}.safetensors").is_file()

    def state(self) -> State:
        """The contents of state.json."""
        return json.loads(regular(self.path / "state.json", SETTINGS).read_text("utf-8"))  # type: ignore[no-any-return]

    @property
    def between(self) -> bool:
        """Whether it was saved because training was stopped: a straight run has none of this step."""
        try:
            return bool(self.state().get("between"))
        except (OSError, ValueError, AttributeError):  # it is damaged
            return False

    def weights(self) -> dict[str, Tensor]:
        """The weights for use: the moving average if it was saved, else the trained weights."""
        model = self.tensors("model")
        return model | self.tensors("average") if self.has("average") else model

    def damage(self) -> str | None:
        """A description of what is wrong with its files; None if nothing is."""
        if absent := [name for name in (CHECKSUMS, *NEEDED) if not (self.path / name).is_file()]:
            return f"{absent[0]} is missing"
        found = damage(self.path)
        if found is None and not {*NEEDED} <= read_json(self.path / CHECKSUMS, dict[str, str]).keys():
            found = f"{CHECKSUMS} is incomplete"
        return found


@dataclass(frozen=True)
class Selection:
    """The checkpoints whose weights are used, newest first, and what they are of a run."""

    name: str
    checkpoints: tuple[Checkpoint, ...]

    @property
    def step(self) -> int:
        """The step of the newest."""
        return self.checkpoints[0].step

    def weights(self) -> dict[str, Tensor]:
        """Their weights for use; of several, the mean of what was trained."""
        if len(self.checkpoints) == 1:
            return self.checkpoints[0].weights()
        return mean(checkpoint.tensors("model") for checkpoint in self.checkpoints)


class Checkpoints:
    """The checkpoints of a run, the last `keep` of them and the best."""

    def __init__(self, folder: Path, keep: int = 3) -> None:
        self.folder, self.keep = folder / "checkpoints", keep

    def all(self) -> list[Checkpoint]:
        """All checkpoints, oldest first."""
        found = [path for path in self.folder.glob("step-*") if path.name[5:].isdecimal() and path.is_dir()]
        return [Checkpoint(path) for path in sorted(found, key=lambda path: int(path.name[5:]))]

    def at(self, step: int) -> Checkpoint:
        """The checkpoint of a step, whether it exists or not."""
        return Checkpoint(self.folder / f"step-{step:08d}")

    def good(self) -> Iterator[Checkpoint]:
        """The undamaged checkpoints, newest first; each damaged one causes a warning and is skipped."""
        return filter(_is_good, reversed(self.all()))

    def latest_good(self) -> Checkpoint | None:
        """The newest undamaged checkpoint."""
        return next(self.good(), None)

    def for_use(self, average: int, best: int | None) -> Selection:
        """What training ends with: the mean of the last `average` checkpoints, the best, or the newest."""
        good = self.good()
        if average > 1 and (last := tuple(islice(good, average))):
            return Selection(f"the mean of its last {len(last)} checkpoints" if len(last) > 1 else NEWEST, last)
        if best is not None and self.at(best) in self.all() and _is_good(self.at(best)):
            return Selection(BEST, (self.at(best),))
        if (newest := next(good, None)) is None:
            raise TrainingError(f"{self.folder} holds no undamaged checkpoint")
        return Selection(NEWEST, (newest,))

    def save(self, step: int, tensors: Mapping[str, Mapping[str, Tensor]], state: State, best: int | None) -> None:
        """Write a checkpoint with one file for each entry of `tensors`, then delete checkpoints no longer needed.

        A full disk or a folder without write permission raises a TrainingError; earlier checkpoints stay as they are.
        """
        path = self.at(step).path
        try:
            self._write(path, tensors, state)
        except (OSError, SafetensorError) as error:
            last = "there is no earlier checkpoint"
            if known := self.all():
                last = f"{known[-1].path.name} is intact: free disk space and resume"
            raise TrainingError(f"the checkpoint {path} cannot be written: {error}; {last}") from error
        self.prune(best)

    def prune(self, best: int | None) -> None:
        """Delete checkpoints that are no longer needed; those of a stop as soon as training has gone on."""
        known = self.all()
        stops = [each for each in known if each.between]
        for old in [*[each for each in known if each not in stops][: -self.keep], *stops]:
            if old.step != best and old != known[-1]:
                with suppress(OSError):
                    remove(old.path.replace(unfinished(old.path)))  # which is none any more, if this process is killed

    def _write(self, path: Path, tensors: Mapping[str, Mapping[str, Tensor]], state: State) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        sweep(self.folder)
        new, damaged = unfinished(path), unfinished(path.with_name(f"{path.name}-damaged"))
        with at_the_end(lambda: remove(new)), at_the_end(lambda: remove(damaged)):
            new.mkdir()
            for name, values in tensors.items():
                plain = {key: value.detach().cpu().contiguous() for key, value in values.items()}
                save_file(plain, new / f"{name}.safetensors")
            (new / "state.json").write_text(json.dumps(state, indent=1), encoding="utf-8")
            write_checksums(new, sorted(each.name for each in new.iterdir()))
            for each in [*new.iterdir(), new]:
                flush(each)
            if path.exists():  # a damaged one that was skipped
                path.replace(damaged)
            new.replace(path)
            flush(self.folder)


def _is_good(checkpoint: Checkpoint) -> bool:
    if (damage := checkpoint.damage()) is not None:
        warnings.warn(f"the checkpoint {checkpoint.path} is damaged: {damage}; it is skipped", stacklevel=2)
    return damage is None


def weights(model: nn.Module) -> dict[str, Tensor]:
    """All weights of a model by name: tied weights once, sharded weights gathered (so every rank must call this)."""
    once: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        once.setdefault(id(tensor), (name, tensor))
    return {name: whole(tensor.detach()) for name, tensor in once.values()}


@torch.no_grad()
def load_weights(model: nn.Module, saved: Mapping[str, Tensor]) -> None:
    """Load what `weights` returned into a model of the same architecture."""
    own = model.state_dict(keep_vars=True)
    names = weights(model).keys()
    for verb, wrong in (("lack", names - saved.keys()), ("hold", saved.keys() - own.keys())):
        if wrong:
            some = f"{min(wrong)} (and {len(wrong) - 1} more)"
            raise TrainingError(f"the saved weights {verb} {some}: they belong to a different model")
    for name in names:
        if saved[name].shape != own[name].shape:
            shapes = f"{tuple(saved[name].shape)}, but the model expects {tuple(own[name].shape)}"
            raise TrainingError(f"the saved weight {name} has the shape {shapes}")
        own[name].copy_(sharded(saved[name].to(own[name].dtype), own[name]))


def not_finite(tensors: Mapping[str, Tensor]) -> str | None:
    """The name of a tensor that holds a number which is not finite; None: all are."""
    for name, tensor in tensors.items():
        # A sum is not finite if a number is not; it takes a tenth of the time, but may overflow by itself.
        if tensor.is_floating_point() and not tensor.sum().isfinite() and not tensor.isfinite().all():
            return name
    return None
