"""Running averages of batch norms: part of a step, of a checkpoint, of averages of weights."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from glassformer.errors import Stopped, TrainingError
from glassformer.models import vit
from glassformer.parts import BatchNorm
from glassformer.parts.norms import running_averages
from glassformer.tasks.images import ImageBatch, image_loss
from glassformer.tasks.objective import Objective
from glassformer.training import Checkpoints, Trainer, shaping
from glassformer.training.averaging import RunningAverages
from glassformer.training.distribution import Distribution
from glassformer.training.meter import Meter
from glassformer.training.optimisers import optimiser
from glassformer.training.shaping import captures
from glassformer.training.stepping import CapturedSteps, Setting, Steps

from .helpers import FakeBatches, options
from .test_resume import assert_same
from .test_stepping import Work

CPU = torch.device("cpu")
FIRST = "encoder.blocks.0.attention.norm.running_mean"


def model() -> nn.Module:
    torch.manual_seed(0)
    return vit(3, 8, 4, 16, 2, 1, 24, norm=BatchNorm, epsilon=1e-5)


def batch(seed: int) -> ImageBatch:
    draw = torch.Generator().manual_seed(seed)
    return ImageBatch(torch.randn(4, 3, 8, 8, generator=draw) + 1, torch.randint(3, (4,), generator=draw))


class Pictures(FakeBatches):
    """Batches of images that know their place."""

    def __iter__(self) -> Iterator[Any]:
        for _ in super().__iter__():
            yield batch(1000 * self.epoch + self.position)


def run(folder: Path, resume: bool = False, loss: Any = image_loss, **changes: Any) -> Trainer:
    trainer = Trainer(model(), Pictures(), options(**changes), folder, loss)
    trainer.run(resume)
    return trainer


def test_a_step_that_a_signal_interrupts_leaves_no_trace_in_them(tmp_path: Path) -> None:
    wish: dict[str, Any] = {"steps": 9, "accumulate": 2, "ema": 0.9, "save_every": 100}
    straight = run(tmp_path / "a", **wish)
    calls = 0

    def loss(learner: Any, images: Any) -> Tensor:
        nonlocal calls
        found = image_loss(learner, images)  # after which the averages have moved
        calls += 1
        if calls == 10:  # the second batch of step 5
            os.kill(os.getpid(), signal.SIGTERM)
            pytest.fail("the signal was not heard")
        return found

    with pytest.raises(Stopped, match="state saved at step 4"):
        run(tmp_path / "b", loss=loss, **wish)
    run(tmp_path / "b", resume=True, **wish)
    assert_same(tmp_path / "a", tmp_path / "b", 9)
    saved = Checkpoints(tmp_path / "a").at(9)
    assert running_averages(model()).keys() <= saved.tensors("model").keys()
    assert saved.tensors("model")[FIRST].abs().max() > 0.01
    assert torch.equal(straight.model.get_buffer(FIRST), saved.tensors("average")[FIRST])


def test_averages_of_weights_average_them_too(tmp_path: Path) -> None:
    trainer = run(tmp_path, steps=8, save_every=4, average=2)
    two = [one.tensors("model")[FIRST] for one in Checkpoints(tmp_path).all()]
    assert not torch.equal(*two)
    torch.testing.assert_close(trainer.model.get_buffer(FIRST), (two[0] + two[1]) / 2)


@pytest.mark.parametrize("captured", [False, True])
def test_a_step_that_is_not_finite_does_not_change_them(captured: bool) -> None:
    net = model()
    chosen = options()
    setting = Setting(
        Objective(net, image_loss),
        [*net.parameters()],
        optimiser(net, chosen),
        Distribution(CPU),
        Meter(CPU),
        bf16=False,
        clip=1.0,
        running=RunningAverages(net),
    )
    steps = CapturedSteps(setting, lambda work, pool: Work(work)) if captured else Steps(setting)
    seen = [{name: each.clone() for name, each in running_averages(net).items()}]
    for number in range(3):
        steps.begin()
        steps.add(batch(number), True)
        if number == 1:
            next(net.parameters()).grad.fill_(torch.nan)  # type: ignore[union-attr]
        steps.prepare(4)(1.0)
        seen.append({name: each.clone() for name, each in running_averages(net).items()})
    assert [torch.equal(seen[number][FIRST], seen[number + 1][FIRST]) for number in range(3)] == [False, True, False]
    assert all(torch.equal(each, setting.running.kept[name]) for name, each in running_averages(net).items())


def test_several_processes_and_captured_steps_are_none_for_batch_norm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shaping, "TRITON", True)
    with pytest.raises(TrainingError, match="statistics from the batches of one process: train with one, or set model"):
        Distribution(CPU, 0, 2).wrap(Objective(model(), image_loss), [])
    gpu = Distribution(torch.device("cuda"))
    assert not captures(options(), gpu, model())
    assert captures(options(), gpu, vit(3, 8, 4, 16, 2, 1, 24))
