"""The meter: what happened since the last look, added up where the numbers are, so that looking is the only wait."""

from __future__ import annotations

import time
from typing import NamedTuple

import torch
from torch import Tensor


class Reading(NamedTuple):
    """What the meter shows."""

    loss: float  # summed over target tokens since the last reset, skipped steps left out
    tokens: float  # target tokens since the last reset, likewise
    skipped: float  # steps skipped since the beginning
    in_a_row: float  # steps skipped in a row, up to now
    worst: float  # the longest such row
    norm: float  # length of the last gradient per token, before clipping


class Meter:
    """Sums of losses and counts of skipped steps, on the device."""

    def __init__(self, device: torch.device) -> None:
        self.values = torch.zeros(len(Reading._fields), dtype=torch.float32 if device.type == "mps" else torch.float64)
        self.values = self.values.to(device)

    def add(self, loss: Tensor, tokens: int, norm: Tensor, bad: Tensor) -> None:
        """Take in a step: its summed loss, its target tokens, and whether it was skipped."""
        sums, skipped, in_a_row, worst = self.values[:2], self.values[2], self.values[3], self.values[4]
        sums += torch.where(bad, 0.0, torch.stack([loss, torch.full_like(loss, tokens)]))
        skipped += bad
        in_a_row.add_(1).mul_(bad)
        torch.maximum(worst, in_a_row, out=worst)
        self.values[5] = norm

    def read(self) -> Reading:
        """Wait for the device, and look."""
        return Reading(*self.values.tolist())

    def reset(self) -> None:
        """Begin new sums of loss and tokens."""
        self.values[:2] = 0

    def load(self, values: list[float]) -> None:
        """Go on from an earlier reading."""
        self.values.copy_(torch.tensor(values))


class Pace:
    """How fast it goes: tokens a second, padding, time spent and time to go."""

    def __init__(self) -> None:
        self.earlier = 0.0  # seconds of earlier sittings
        self.tokens = self.places = 0  # since the last report
        self.start(0)

    def start(self, step: int) -> None:
        """Begin a sitting after this step, with what `load` or nobody has said of earlier ones."""
        self.first, self.before = step, self.tokens
        self.began = self.looked = time.perf_counter()

    def add(self, tokens: int, places: int) -> None:
        """Take in a step: real tokens of both sides, and the places that they and their padding take."""
        self.tokens += tokens
        self.places += places

    def load(self, elapsed: float, tokens: int, places: int) -> None:
        """Go on from an earlier sitting."""
        self.earlier, self.tokens, self.places = elapsed, tokens, places

    @property
    def elapsed(self) -> float:
        """Seconds of training, earlier sittings included."""
        return self.earlier + time.perf_counter() - self.began

    def report(self, step: int, steps: int) -> dict[str, float]:
        """The pace since the last report, in the words of the log."""
        now = time.perf_counter()
        record = {
            "tokens_per_s": (self.tokens - self.before) / max(now - self.looked, 1e-9),
            "padding": 1 - self.tokens / max(self.places, 1),
            "elapsed": self.elapsed,
            "eta": (now - self.began) / max(step - self.first, 1) * (steps - step),
        }
        self.looked, self.tokens, self.places, self.before = now, 0, 0, 0
        return record
