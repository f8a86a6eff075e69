"""The time budget: as many steps as fit into `train.minutes`, fixed once; the seconds are those of a clock of ours."""

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from glassformer.errors import Stopped
from glassformer.recipe import Train
from glassformer.tasks.translation import translation_loss
from glassformer.training import Checkpoints, Trainer
from glassformer.training.budget import Measured, read_budget
from glassformer.training.schedules import UNKNOWN, schedule

from .helpers import FakeBatches, model, options
from .test_resume import assert_same


class Clock:
    """A clock that a step moves by 1 second (the first two by 5), a validation by 4."""

    def __init__(self) -> None:
        self.now = 100.0
        self.stop_at = 0
        self.ticks: list[dict[str, Any]] = []

    def __call__(self) -> float:
        return self.now

    def tick(self, record: dict[str, Any]) -> None:
        self.now += 5.0 if len(self.ticks) < 2 else 1.0
        self.ticks.append(record)
        if record["step"] == self.stop_at:
            os.kill(os.getpid(), signal.SIGTERM)

    def validate(self, _: nn.Module) -> dict[str, float]:
        self.now += 4.0
        return {"loss": 1.0}


def run(folder: Path, resume: bool = False, stop_at: int = 0, **changes: Any) -> tuple[Trainer, Clock]:
    clock = Clock()
    clock.stop_at = stop_at
    wish = {"steps": 1, "minutes": 2, "validate_every": 10, "save_every": 100, "schedule": "linear"} | changes
    told: dict[str, Any] = {"validate": clock.validate, "tick": clock.tick, "clock": clock}
    trainer = Trainer(model(), FakeBatches(), options(**wish), folder, translation_loss, **told)
    if stop_at:
        with pytest.raises(Stopped):
            trainer.run(resume)
    else:
        trainer.run(resume)
    return trainer, clock


def test_the_steps_fit_into_the_time(tmp_path: Path) -> None:
    trainer, clock = run(tmp_path)
    # A tenth of the time is over, and ten steps follow the first three, after step 13 and the validation at step 10:
    # 5 + 5 + 11 + 4 + 4 seconds, and the last validation takes 4 of the 91 left.
    assert read_budget(tmp_path) == Measured(13, elapsed=29.0, seconds_per_step=1.0, validation=4.0, checkpoint=0.0)
    assert trainer.step == trainer.steps == 13 + int(87 / 1.4)
    assert 110 < clock.now - 100 <= 120
    assert [tick["steps"] for tick in clock.ticks] == [None] * 13 + [75] * 62


def test_a_validation_within_the_first_tenth_of_the_time_fixes_them(tmp_path: Path) -> None:
    run(tmp_path, minutes=10, validate_every=15)
    measured = read_budget(tmp_path)
    assert measured is not None
    assert (measured.step, measured.elapsed, measured.seconds_per_step) == (15, 27.0, 1.0)


def test_the_same_as_with_that_number_of_steps(tmp_path: Path) -> None:
    """Measuring has ended within warm-up, which it leaves as it is; the one more validation changes no weight."""
    trainer, _ = run(tmp_path / "minutes", warmup=15)
    run(tmp_path / "steps", minutes=None, steps=trainer.steps, warmup=15)
    one, other = (Checkpoints(tmp_path / name).at(trainer.step).tensors("model") for name in ("minutes", "steps"))
    assert all(one[name].equal(other[name]) for name in one)


@pytest.mark.parametrize("stop_at", [7, 30])
@pytest.mark.parametrize("changes", [{"schedule": "cosine", "accumulate": 2}, {"schedule": "wsd", "average": 3}])
def test_stopped_and_resumed_is_as_if_nothing_had_been(tmp_path: Path, stop_at: int, changes: dict[str, Any]) -> None:
    """Before and after the steps are fixed: what was fixed says all about the rest of the run."""
    run(tmp_path / "stopped", stop_at=stop_at, **changes)
    assert (read_budget(tmp_path / "stopped") is None) == (stop_at == 7)
    resumed, _ = run(tmp_path / "stopped", resume=True, **changes)
    (tmp_path / "straight").mkdir()
    shutil.copy(tmp_path / "stopped" / "budget.json", tmp_path / "straight")
    straight, _ = run(tmp_path / "straight", resume=True, **changes)
    assert resumed.steps == straight.steps == straight.step
    assert_same(tmp_path / "straight", tmp_path / "stopped", straight.step)


def test_a_run_that_was_killed_after_the_steps_were_fixed_takes_them_from_the_folder(tmp_path: Path) -> None:
    straight, _ = run(tmp_path / "a", save_every=2, keep=100)
    run(tmp_path / "b", save_every=2, stop_at=40, keep=100)
    for checkpoint in Checkpoints(tmp_path / "b").all():
        if checkpoint.step > 2:  # as if it had been killed before the first of them was written
            for path in checkpoint.path.iterdir():
                path.unlink()
            checkpoint.path.rmdir()
    resumed, _ = run(tmp_path / "b", resume=True, save_every=2, keep=100)
    assert resumed.steps == straight.steps
    assert_same(tmp_path / "a", tmp_path / "b", straight.step)


def test_more_minutes_are_more_steps_of_the_speed_that_was_measured(tmp_path: Path) -> None:
    first, _ = run(tmp_path)
    more, _ = run(tmp_path, resume=True, minutes=3)
    assert first.steps is not None
    assert more.step == more.steps == 13 + int(147 / 1.4)


def test_a_new_training_forgets_what_another_has_measured(tmp_path: Path) -> None:
    (tmp_path / "budget.json").write_text(json.dumps({"step": 1, "elapsed": 1, "seconds_per_step": 9, "validation": 0}))
    trainer, _ = run(tmp_path)
    assert trainer.steps == 75


def test_a_step_that_takes_all_the_time_is_followed_by_one_more(tmp_path: Path) -> None:
    trainer, _ = run(tmp_path, minutes=0.05)
    assert trainer.step == 2


@pytest.mark.parametrize("name", ["inverse-sqrt", "cosine", "linear", "constant", "wsd"])
@pytest.mark.parametrize(("warmup", "measured", "steps"), [(400, 20, 4000), (400, 20, 200), (10, 60, 400), (0, 5, 6)])
def test_the_learning_rate_up_to_the_measurement_does_not_depend_on_the_steps(
    name: Any, warmup: int, measured: int, steps: int
) -> None:
    wish = Train(schedule=name, warmup=warmup, steps=steps)
    before, after = schedule(wish.model_copy(update={"steps": 1}), UNKNOWN), schedule(wish, measured)
    assert [before(step) for step in range(1, measured + 1)] == [after(step) for step in range(1, measured + 1)]
    factors = [after(step) for step in range(1, steps + 1)]
    assert all(0 < factor <= 1 for factor in factors)
    top = factors.index(max(factors))
    assert factors[: top + 1] == sorted(factors[: top + 1])
    assert top <= max(measured, steps // 4)
    if measured <= warmup <= steps // 4:
        plain = schedule(wish)
        assert factors == [plain(step) for step in range(1, steps + 1)]
