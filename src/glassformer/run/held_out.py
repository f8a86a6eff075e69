"""What the runs of all tasks have in common: a folder with examples that were kept out of training, a device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from torch import nn

from glassformer.errors import InputError
from glassformer.run import folder as files

Progress = Callable[[int, int], None]  # done, of how many
SHOWN = 60  # characters of a text in a complaint


def held_out(path: Path | None, split: str) -> list[tuple[str, str]]:
    """The examples that were kept out of a run's training: "valid" or "test"."""
    if path is None:
        raise InputError("this run has no folder to read its pairs from")
    pairs = files.read_pairs(path, split)
    if not pairs:
        raise InputError(f"{path} has no {split} pairs: name a file of your own")
    return pairs


def device_of(model: nn.Module) -> torch.device:
    """Where a model is."""
    return next(model.parameters()).device


def by_length(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Rows of like length together, the longest first: as many as the budget has places for, and at least one."""
    left = sorted(range(len(lengths)), key=lambda row: lengths[row])
    while left:
        fitting = max(1, min(len(left), budget // max(lengths[left[-1]], 1)))
        rows, left = left[-fitting:], left[:-fitting]
        yield rows


def shown(text: str) -> str:
    """A text in a complaint: in quotes, and cut where it is long."""
    return repr(text if len(text) <= SHOWN else f"{text[:SHOWN]}…")
