"""Schedules: how the learning rate rises and falls. Each is the share of the highest rate at a step, from 1 to `steps`.

All rise in a straight line for `warmup` steps, while the optimiser's averages are still guesses; then

inverse-sqrt    √(warmup / step)                        the paper's; never ends
cosine          (1 + cos(π · done)) / 2                 done: the share of the fall that lies behind, from 0 to 1
linear          1 - done
constant        1
wsd             1, then 1 - done in the last `decay` share of the steps (warm-up, stable, decay)

The fall would reach 0 one step after the last, so that no step is wasted.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from glassformer.recipe import Train

Schedule = Callable[[int], float]


def inverse_sqrt(step: int, warmup: int) -> float:
    """√(warmup / step): d^-½ min(step^-½, step · warmup^-1.5) of the paper, as a share of its peak."""
    return _rise(step, warmup) if step < warmup else math.sqrt(max(1, warmup) / step)


def cosine(step: int, warmup: int, steps: int) -> float:
    """Half a wave, from 1 to 0."""
    return _rise(step, warmup) if step < warmup else (1 + math.cos(math.pi * _done(step, warmup, steps))) / 2


def linear(step: int, warmup: int, steps: int) -> float:
    """A straight line, from 1 to 0."""
    return _rise(step, warmup) if step < warmup else 1 - _done(step, warmup, steps)


def constant(step: int, warmup: int) -> float:
    """The highest rate to the end."""
    return _rise(step, warmup) if step < warmup else 1.0


def wsd(step: int, warmup: int, steps: int, decay: float) -> float:
    """Warm up, stay, decay: training can be prolonged from any point of the middle part."""
    fall = max(warmup, steps - round(decay * steps))
    return _rise(step, warmup) if step < warmup else 1 - _done(step, fall, steps)


def schedule(options: Train) -> Schedule:
    """The schedule that a recipe asks for."""
    warmup, steps, decay = options.warmup, options.steps, options.decay
    return {
        "inverse-sqrt": lambda step: inverse_sqrt(step, warmup),
        "cosine": lambda step: cosine(step, warmup, steps),
        "linear": lambda step: linear(step, warmup, steps),
        "constant": lambda step: constant(step, warmup),
        "wsd": lambda step: wsd(step, warmup, steps, decay),
    }[options.schedule]


def _rise(step: int, warmup: int) -> float:
    return step / warmup


def _done(step: int, first: int, steps: int) -> float:
    """The share of the fall from `first` to one past `steps` that lies behind."""
    return min(1.0, max(0, step - first) / (steps + 1 - first)) if first <= steps else 1.0
