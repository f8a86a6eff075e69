"""The meter: sums kept on the device, so that only reading them waits for it; and the speed of training."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor


class Reading(NamedTuple):
    """The values of the meter."""

    loss: float  # summed over targets since the last reset, without skipped steps
    tokens: float  # targets since the last reset, without skipped steps
    skipped: float  # skipped steps since step 1
    in_a_row: float  # consecutive skipped steps up to now
    worst: float  # the most consecutive skipped steps so far
    norm: float  # norm of the last gradient per target, before clipping


class Meter:
    """Sums of losses and counts of skipped steps, on the device."""

    def __init__(self, device: torch.device) -> None:
        self.values = torch.zeros(len(Reading._fields), dtype=torch.float32 if device.type == "mps" else torch.float64)
        self.values = self.values.to(device)
        # The values after the last two steps, which come to the host by themselves.
        self._marks = [_Mark(self.values) for _ in range(2)] if device.type == "cuda" else []
        self._marked = 0

    def add(self, loss: Tensor, tokens: int | Tensor, norm: Tensor, bad: Tensor) -> None:
        """Add a step: its summed loss, number of targets, gradient norm, and whether it was skipped."""
        sums, skipped, in_a_row, worst = self.values[:2], self.values[2], self.values[3], self.values[4]
        count = tokens if isinstance(tokens, Tensor) else torch.full_like(loss, tokens)
        sums += torch.stack([loss, count]).masked_fill(bad, 0.0)
        skipped += bad
        in_a_row.add_(1).mul_(bad)
        torch.maximum(worst, in_a_row, out=worst)
        self.values[5] = norm

    def read(self) -> Reading:
        """Wait for the device and read the values."""
        return Reading(*self.values.tolist())

    def mark(self) -> None:
        """A step is told to the device: its values may be asked for after the next one, by `earlier`."""
        if self._marks:
            self._marked += 1
            self._marks[self._marked % 2].take(self.values)

    def earlier(self) -> Reading:
        """The values before the last step, for which the device is waited for while it still has that step to do."""
        return Reading(*self._marks[(self._marked - 1) % 2].wait()) if self._marked > 1 else self.read()

    def reset(self) -> None:
        """Set the sums of loss and targets to 0."""
        self.values[:2] = 0

    def load(self, values: list[float]) -> None:
        """Continue from an earlier reading."""
        self.values.copy_(torch.tensor(values, dtype=self.values.dtype))


class _Mark:
    """Values on their way from a CUDA device."""

    def __init__(self, values: Tensor) -> None:
        self._here = torch.empty_like(values, device="cpu").pin_memory()
        self._arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]

    def take(self, values: Tensor) -> None:
        """Copy these values as soon as the device is through with all that it has been told so far."""
        self._here.copy_(values, non_blocking=True)
        self._arrived.record()

    def wait(self) -> list[float]:
        """What has been copied."""
        self._arrived.synchronize()
        return self._here.tolist()


class Pace:
    """The speed of training: tokens per second, padding, elapsed and remaining time."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock
        self.earlier_seconds = 0.0  # seconds before the last resume
        self.tokens = self.padded_tokens = 0  # since the last report
        self.start(0)

    def start(self, step: int) -> None:
        """Start the clock after this step; `load` has been called before if training was resumed."""
        self.first_step, self.tokens_before_start = step, self.tokens
        self.started = self.last_report = self.clock()

    def add(self, tokens: int, padded_tokens: int) -> None:
        """Add a step: its real tokens of both sides, and all its tokens with padding."""
        self.tokens += tokens
        self.padded_tokens += padded_tokens

    def load(self, elapsed: float, tokens: int, padded_tokens: int) -> None:
        """Continue from the counts of an interrupted run."""
        self.earlier_seconds, self.tokens, self.padded_tokens = elapsed, tokens, padded_tokens

    @property
    def elapsed(self) -> float:
        """Seconds of training, those before a resume included."""
        return self.earlier_seconds + self.clock() - self.started

    def speed(self) -> dict[str, float]:
        """The speed since the last report, with the keys of the log."""
        now = self.clock()
        return {
            "tokens_per_s": (self.tokens - self.tokens_before_start) / max(now - self.last_report, 1e-9),
            "padding": 1 - self.tokens / max(self.padded_tokens, 1),
            "elapsed": self.elapsed,
        }

    def eta(self, step: int, steps: int) -> float:
        """The seconds that the remaining steps will take, at the speed since the start."""
        return (self.clock() - self.started) / max(step - self.first_step, 1) * (steps - step)

    def reset(self) -> None:
        """Begin to count for the next report."""
        self.last_report, self.tokens, self.padded_tokens, self.tokens_before_start = self.clock(), 0, 0, 0
