"""The time budget: `train.minutes` becomes a number of steps once, after the speed of the machine has been measured.

Measuring ends with the first validation, or after a tenth of the time, when a validation is made for it: in both cases
after ten steps that follow the first slow ones, but at the latest after a third of the time. Until then the learning
rate warms up or stays, which does not depend on the number of steps. With the seconds of a step, of a validation and of
a checkpoint,

    steps = step + (time left - validation - checkpoint) / (a step + its part of validations and checkpoints)

What was measured is written to budget.json, from which a resumed run has the same steps and learning rates.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from glassformer.training.meter import Pace
from glassformer.writing import read_json, to_json, write_text

if TYPE_CHECKING:
    from glassformer.recipe import Train

BUDGET = "budget.json"
MEASURING, LONGEST = 1 / 10, 1 / 3  # of the time
STARTING, COMPILING = 3, 20  # steps that are slower than the others: the first ones, and those that compile or capture
MEASURED = 10  # steps after these, at least


@dataclass(frozen=True)
class Measured:
    """The speed of a training, in seconds: `elapsed` up to a step; a step, a validation, a checkpoint on average."""

    step: int
    elapsed: float
    seconds_per_step: float
    validation: float
    checkpoint: float

    def steps(self, options: Train) -> int:
        """The number of steps that fits into `train.minutes`: at least one more."""
        at_validation = self.validation + self.checkpoint  # of the best so far
        others = 0.0 if options.save_every % options.validate_every == 0 else self.checkpoint / options.save_every
        each = self.seconds_per_step + at_validation / options.validate_every + others
        left = 60 * (options.minutes or 0) - self.elapsed - at_validation
        return self.step + max(1, int(left / max(each, 1e-9)))


class Measuring:
    """The measurement of a process: the seconds of its steps alone, after the slow ones at the start."""

    def __init__(self, options: Train, pace: Pace, compiling: bool = False) -> None:
        self._options, self._pace = options, pace
        self._starting = COMPILING if compiling else STARTING
        self._step, self._since = 0, 0.0  # since when steps are measured
        self.aside = 0.0  # seconds that were not spent on steps

    def start(self) -> None:
        """The first step of the process begins."""
        self._step, self._since = self._pace.first_step, self._pace.started

    def ends(self, step: int, validating: bool, wait: Callable[[], object]) -> bool:
        """Whether enough is measured after a step, with which a validation is due or not; `wait` is for the device."""
        done = step - self._pace.first_step - self._starting
        if done == 0:
            wait()
            self._step, self._since = step, self._pace.clock() - self.aside
        spent = self._pace.elapsed / (60 * (self._options.minutes or 1))
        return spent >= LONGEST or (done >= MEASURED and (validating or spent >= MEASURING))

    def result(self, step: int, began: float, checkpoint: float) -> Measured:
        """What was measured up to a step, after which a validation and a checkpoint have begun at a time."""
        first, since = (self._step, self._since) if step > self._step else (self._pace.first_step, self._pace.started)
        each, validation = (began - self.aside - since) / (step - first), self._pace.clock() - began - checkpoint
        return Measured(step, self._pace.elapsed, each, validation, checkpoint)


def read_budget(folder: Path) -> Measured | None:
    """What was measured in a run; None: nothing yet."""
    return read_json(folder / BUDGET, Measured) if (folder / BUDGET).is_file() else None


def write_budget(folder: Path, measured: Measured) -> None:
    """Write what was measured into the folder of a run."""
    write_text(folder / BUDGET, to_json(asdict(measured)))
