"""Looks: the attention over some texts at some steps of a training, in looks/STEP.trace of the run folder.

They are small: only weights, in 16 bits. A resumed training writes the same files as one that was not interrupted.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from glassformer.errors import ConfigurationError, InputError, NonFiniteError, TrainingError
from glassformer.looking import load_trace, points
from glassformer.looking.sentences import joined
from glassformer.looking.trace import Trace
from glassformer.tasks.run import Run

FOLDER = "looks"
LONGEST = 128  # tokens of a text: the weights of 48 heads over such a text take 1.5 MB


class Looks:
    """Looks at some texts with the model of a training, and writes what it sees: call it with the model, the step."""

    def __init__(self, run: Run, texts: Sequence[str]) -> None:
        self._run, self._folder = run, (run.path or Path()) / FOLDER
        self._names = [name for name in points(run) if name.endswith(".weights")]
        if not self._names:
            raise ConfigurationError("look.texts: this model has no attention to look at; leave out [look]")
        self._items = [self._checked(text) for text in texts]

    def _checked(self, text: str) -> Any:
        """What the run reads for a text; one that is empty, too long or of another form is refused."""
        try:
            item = self._run.item(text)
            length = len(self._run.read_something(item))
        except InputError as error:
            raise ConfigurationError(f"look.texts: {error}") from None
        if length > LONGEST or self._run.cuts(item):
            raise ConfigurationError(
                f"look.texts: {text[:40]!r}… has {length} tokens or more, and {LONGEST} are looked at at most"
            )
        return item

    def forget(self, after: int) -> None:
        """Remove the looks of later steps, which are taken again, and of another training, if this one begins."""
        for step, path in _files(self._folder):
            if step > after or not after:
                path.unlink()

    def __call__(self, model: nn.Module, step: int) -> None:
        run = self._run.with_model(model).quick()
        try:
            traces = [run.look(item, keep="weights") for item in self._items]
        except NonFiniteError:  # the loss tells
            return
        try:
            self._folder.mkdir(exist_ok=True)
            joined(traces, self._names, torch.float16).save(self._folder / f"{step}.trace")
        except (OSError, InputError) as error:
            reason = getattr(error, "strerror", None) or error
            raise TrainingError(f"{self._folder}: cannot be written to: {reason}; the checkpoints are intact") from None


def read_looks(folder: Path) -> list[tuple[int, Trace]]:
    """The looks of a run, with their steps."""
    found = [(step, load_trace(path)) for step, path in _files(folder / FOLDER)]
    if not found:
        raise InputError(f"{folder} was not looked at while it was trained: name texts in [look] of its recipe")
    return found


def look_steps(folder: Path) -> list[int]:
    """The steps at which a run was looked at; a training under way adds more."""
    return [step for step, _ in _files(folder / FOLDER)]


def read_look(folder: Path, step: int) -> Trace:
    """The look of one step."""
    if step not in (steps := look_steps(folder)):
        known = f"there is {', '.join(map(str, steps[:10]))}{' and more' * (len(steps) > 10)}" if steps else "none was"
        raise InputError(f"no look was taken at step {step}: {known}")
    return load_trace(folder / FOLDER / f"{step}.trace")


def _files(folder: Path) -> list[tuple[int, Path]]:
    """The files of looks, in the order of their steps."""
    return sorted((int(path.stem), path) for path in folder.glob("*.trace") if path.stem.isdecimal())
