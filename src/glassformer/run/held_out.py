"""What the runs of all tasks have in common: a folder with examples that were kept out of training, a device.

B rows in a batch, T length
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from glassformer.errors import InputError
from glassformer.parts import pad
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


def in_batches(
    rows: Sequence[Sequence[int]], budget: int, filler: int, model: nn.Module, progress: Progress | None = None
) -> Iterator[tuple[list[int], Tensor, Tensor]]:
    """Rows of like length together, where the model is: their numbers, their tokens (B, T), which of them are real."""
    done = 0
    for numbers in by_length([len(row) for row in rows], budget):
        tokens, keep = pad([rows[number] for number in numbers], filler)
        yield numbers, tokens.to(device_of(model)), keep.to(device_of(model))
        done += len(numbers)
        if progress is not None:
            progress(done, len(rows))


def shown(text: str) -> str:
    """A text in a complaint: in quotes, and cut where it is long."""
    return repr(text if len(text) <= SHOWN else f"{text[:SHOWN]}…")
