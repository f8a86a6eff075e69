"""What a training shows where there is no terminal: soon, and then at least every half minute."""

from pathlib import Path
from typing import Any

import pytest

from glassformer.cli.progress import TrainingProgress
from glassformer.tasks.translation import translation_loss
from glassformer.training import Trainer
from training.helpers import FakeBatches, model, options


class Seconds:
    """A clock that each step moves."""

    def __init__(self, each: float) -> None:
        self.now, self.each = 0.0, each

    def __call__(self) -> float:
        return self.now


def shown(folder: Path, capsys: pytest.CaptureFixture[str], each: float, **changes: Any) -> list[str]:
    """The lines of a training whose steps take so many seconds."""
    clock = Seconds(each)
    progress = TrainingProgress(clock)

    def tick(record: dict[str, Any]) -> None:
        progress.tick(record)
        clock.now += clock.each

    wish = options(**{"steps": 40, "log_every": 1000} | changes)
    with progress:
        Trainer(model(), FakeBatches(), wish, folder, translation_loss, log=progress.log, tick=tick, clock=clock).run()
    return capsys.readouterr().err.splitlines()


def test_loss_speed_and_time_left_are_shown_after_the_first_steps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = shown(tmp_path, capsys, each=10.0)
    assert lines[0].startswith("step 3: epoch 1  loss 3.")
    assert lines[0].endswith(" to go")
    assert [line.split(":")[0] for line in lines[1:4]] == ["step 7", "step 11", "step 15"]  # more than 30 s apart


def test_quick_steps_are_shown_as_seldom_as_slow_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(tmp_path, capsys, each=0.4, steps=100)
    assert [line.split(":")[0] for line in lines] == ["step 4", "step 82"]  # after 1.2 s and 32.4 s


def test_the_number_of_steps_that_fit_is_told_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(tmp_path, capsys, each=1.0, minutes=0.5)
    assert lines[0].endswith("0:00:28 to go")  # known before the number of steps is
    assert lines[1] == "30 steps will fit into 0.5 minutes"
    assert not any("will fit" in line for line in lines[2:])
