"""Schedules: the learning-rate factor (1 at the highest rate) at each step from 1 to `steps`.

All rise linearly for `warmup` steps, while the optimiser's averages are still inaccurate; then

inverse-sqrt    √(warmup / step)                        as in the paper; never reaches 0
cosine          (1 + cos(π · done)) / 2                 done: the finished fraction of the decay, from 0 to 1
linear          1 - done
constant        1
wsd             1, then 1 - done in the last fraction `decay` of the steps (warm-up, stable, decay)

The decay would reach 0 one step after the last, so that no step has the rate 0.

With `train.minutes`, the number of steps is unknown up to the step `measured`. Until then the rate rises as it would
anyway, and then stays (inverse-sqrt falls as it would anyway). After it, warm-up ends within the first quarter of the
steps, and a decay begins.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from glassformer.recipe import Train

Schedule = Callable[[int], float]
UNKNOWN = sys.maxsize


def schedule(options: Train, measured: int = 0) -> Schedule:
    """The schedule of a recipe; before the number of steps is known, `measured` is UNKNOWN."""
    warmup, steps = options.warmup, options.steps
    peak = min(warmup, max(measured, steps // 4)) if measured else warmup  # the end of warm-up
    start = max(peak, measured)  # of the decay
    if options.schedule == "wsd":
        start = max(start, steps - round(options.decay * steps))

    def rise(step: int) -> float:
        if step <= measured or peak == warmup:
            return step / warmup
        low = measured / warmup
        return low + (1 - low) * (step - measured) / (peak - measured)

    def done(step: int) -> float:
        return min(1.0, max(0, step - start) / max(1, steps + 1 - start))

    after_warmup: Schedule = {
        "inverse-sqrt": lambda step: math.sqrt(max(1, peak) / step),
        "cosine": lambda step: (1 + math.cos(math.pi * done(step))) / 2,
        "linear": lambda step: 1 - done(step),
        "constant": lambda step: 1.0,
        "wsd": lambda step: 1 - done(step),
    }[options.schedule]
    return lambda step: rise(step) if step < (warmup if step <= measured else peak) else after_warmup(step)
