"""Schedules: the learning-rate factor (1 at the highest rate) at each step from 1 to `steps`.

All rise linearly for `warmup` steps, while the optimiser's averages are still inaccurate; then

inverse-sqrt    √(warmup / step)                        as in the paper; never reaches 0
cosine          (1 + cos(π · done)) / 2                 done: the finished fraction of the decay, from 0 to 1
linear          1 - done
constant        1
wsd             1, then 1 - done in the last fraction `decay` of the steps (warm-up, stable, decay)

The decay would reach 0 one step after the last, so that no step has the rate 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from glassformer.recipe import Train

Schedule = Callable[[int], float]


def schedule(options: Train) -> Schedule:
    """The schedule of a recipe."""
    warmup, steps = options.warmup, options.steps
    start = max(warmup, steps - round(options.decay * steps)) if options.schedule == "wsd" else warmup

    def done(step: int) -> float:
        return min(1.0, max(0, step - start) / (steps + 1 - start)) if start <= steps else 1.0

    after_warmup: Schedule = {
        "inverse-sqrt": lambda step: math.sqrt(max(1, warmup) / step),
        "cosine": lambda step: (1 + math.cos(math.pi * done(step))) / 2,
        "linear": lambda step: 1 - done(step),
        "constant": lambda step: 1.0,
        "wsd": lambda step: 1 - done(step),
    }[options.schedule]
    return lambda step: step / warmup if step < warmup else after_warmup(step)
