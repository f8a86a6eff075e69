"""Steps: captured ones change the weights as those that come one by one; here a graph is the work itself."""

import copy
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import nn

import glassformer as gf
from glassformer.data.planning import Grid
from glassformer.models import recurrent
from glassformer.parts.schemes import learned
from glassformer.recipe import Train
from glassformer.tasks.gathering import TextBatch
from glassformer.tasks.losses import IGNORED, smoothed
from glassformer.tasks.objective import Objective
from glassformer.tasks.translation import PairBatch, translation_loss
from glassformer.training import shaping
from glassformer.training.averaging import RunningAverages
from glassformer.training.distribution import Distribution
from glassformer.training.meter import Meter
from glassformer.training.optimisers import optimiser
from glassformer.training.shaping import captures, grid_of
from glassformer.training.stepping import CapturedSteps, Counted, Setting, Steps, shape_of

CPU = torch.device("cpu")
GRID = Grid(batch_tokens=64, multiple=4)


class Work:
    """A graph whose replay does the work anew."""

    def __init__(self, work: Callable[[], None]) -> None:
        self.replay = work


def batch_of(seed: int, pairs: int = 5, longest: int = 9) -> PairBatch:
    rng = np.random.default_rng(seed)
    source, source_mask = gf.pad([rng.integers(3, 30, rng.integers(2, longest)).tolist() for _ in range(pairs)])
    target, target_mask = gf.pad([rng.integers(3, 30, rng.integers(2, longest)).tolist() for _ in range(pairs)])
    return PairBatch(
        source,
        source_mask,
        torch.cat((torch.ones(pairs, 1, dtype=torch.long), target[:, :-1]), 1),
        target,
        target_mask,
        torch.arange(pairs),
        int(source_mask.sum()),
        int(target_mask.sum()),
    )


def setting_of(model: nn.Module, consistency: float = 0.0, **options: Any) -> Setting:
    train = Train(lr=1e-2, **options)
    return Setting(
        Objective(model, translation_loss, 0.1, consistency),
        [*model.parameters()],
        optimiser(model, train),
        Distribution(CPU),
        Meter(CPU),
        bf16=False,
        clip=train.clip,
        running=RunningAverages(model),
    )


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return gf.transformer(30, width=16, heads=2, layers=1, hidden=32, dropout=0.0)


@pytest.mark.parametrize("how", ["adamw", "adam", "muon"])
@pytest.mark.parametrize("consistency", [0.0, 2.0])
def test_captured_steps_change_the_weights_as_others_do(model: nn.Module, how: str, consistency: float) -> None:
    other = copy.deepcopy(model)
    captured: list[Work] = []

    def capture(work: Callable[[], None], pool: object) -> Work:
        captured.append(Work(work))
        return captured[-1]

    one = Steps(setting_of(model, consistency, optimiser=how, clip=0.5))
    two = CapturedSteps(setting_of(other, consistency, optimiser=how, clip=0.5), capture)
    for step in range(6):
        one.begin()
        two.begin()
        targets = 0
        for number in range(2):  # gradients of two batches add up
            plain, form = Counted.of(batch_of(2 * step + number)), Counted.of(batch_of(2 * step + number), GRID)
            assert (plain.targets, plain.tokens) == (form.targets, form.tokens)
            one.add(plain.form, number == 1)
            two.add(form.form, number == 1)
            targets += plain.targets
        one.prepare(targets)(1 / (step + 1))
        two.prepare(targets)(1 / (step + 1))
    assert len(captured) > 1  # a shape that came again, and the update
    for name, weight in model.named_parameters():
        if name.endswith("key.bias"):
            continue  # the softmax does not depend on it: its gradient is nothing but rounding, which Adam makes large
        torch.testing.assert_close(other.get_parameter(name), weight, atol=2e-5, rtol=1e-4, msg=name)
    torch.testing.assert_close(two.setting.meter.values, one.setting.meter.values, atol=1e-3, rtol=1e-4)


def test_a_step_that_is_not_finite_changes_nothing(model: nn.Module) -> None:
    steps = CapturedSteps(setting_of(model), lambda work, pool: Work(work))
    steps.add(batch_of(0), True)
    steps.prepare(10)(1.0)
    before = [weight.clone() for weight in model.parameters()]
    steps.add(batch_of(1), True)
    next(model.parameters()).grad.fill_(torch.nan)  # type: ignore[union-attr]
    steps.prepare(10)(1.0)
    for weight, old in zip(model.parameters(), before, strict=True):
        assert torch.equal(weight, old)
    assert steps.setting.meter.read().skipped == 1
    steps.add(batch_of(1), True)  # the gradients that were not finite are gone
    steps.prepare(10)(1.0)
    assert steps.setting.meter.read().in_a_row == 0
    assert all(weight.isfinite().all() for weight in model.parameters())


class Waiting(PairBatch):
    """Pairs with something in them that waits for the device."""

    axes: ClassVar[Mapping[str, str]] = {}


def test_the_update_is_captured_where_passes_are_not(model: nn.Module) -> None:
    other = copy.deepcopy(model)
    graphs: list[Any] = []
    replays: list[Any] = []

    def capture(work: Callable[[], None], pool: object) -> Work:
        def replay() -> None:
            replays.append(work)
            work()

        graphs.append(work)
        return Work(replay)

    one, two = Steps(setting_of(model)), CapturedSteps(setting_of(other), capture)
    for step in range(4):
        batch = Waiting(**vars(batch_of(step)))
        one.begin()
        for steps in (one, two):
            steps.add(batch, True)
            steps.prepare(batch.targets)(1.0)
    assert len(graphs) == 1
    assert len(replays) == 3
    for name, weight in model.named_parameters():
        if not name.endswith("key.bias"):  # whose gradient is nothing but rounding
            torch.testing.assert_close(other.get_parameter(name), weight, atol=2e-5, rtol=1e-4, msg=name)


def test_few_shapes_serve_many_batches() -> None:
    shapes = {shape_of(batch_of(seed).fitted(GRID)) for seed in range(300)}
    assert len(shapes) < 12 < len({shape_of(batch_of(seed)) for seed in range(300)})


def test_fitted_batches_hold_the_same(model: nn.Module) -> None:
    plain = batch_of(3)
    fitted = plain.fitted(GRID)
    assert isinstance(fitted, PairBatch)
    rows, width = plain.source.shape
    assert fitted.source.shape[1] % 4 == fitted.target_out.shape[1] % 4 == 0
    assert torch.equal(fitted.source[:rows, :width], plain.source)
    assert not fitted.source_mask[:, width:].any()
    assert int((fitted.target_out != IGNORED).sum()) == plain.targets
    objective = Objective(model, translation_loss, 0.1)
    torch.testing.assert_close(objective(fitted), objective(plain), rtol=1e-5, atol=1e-4)


def test_steps_are_captured_on_one_gpu_unless_the_host_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shaping, "TRITON", True)
    net, gpu = gf.transformer(9, width=8, heads=2, layers=1), Distribution(torch.device("cuda"))
    assert captures(Train(), gpu, net)
    assert not captures(Train(), Distribution(CPU), net)
    assert not captures(Train(compile=False), gpu, net)
    assert not captures(Train(), Distribution(torch.device("cuda"), 0, 2), net)
    assert not captures(Train(), gpu, recurrent(9, width=8, dropout=0.0))


def test_lengths_do_not_outgrow_learned_positions() -> None:
    grid = grid_of(Train(batch_tokens=100), gf.transformer(9, width=8, heads=2, layers=1, positions=learned, length=10))
    assert grid.lengths(np.array([3, 8, 9, 10], np.int32)).tolist() == [4, 8, 9, 10]


def test_a_batch_without_axes_keeps_its_shape() -> None:
    text, mask = gf.pad([[5, 6, 7, 8, 9], [10, 11]])
    batch = TextBatch(text, mask, None, torch.tensor([0, 1]), int(mask.sum()))
    assert batch.fitted(GRID) is batch


def test_rows_that_do_not_count_have_no_gradient() -> None:
    torch.manual_seed(0)
    logits, right = torch.randn(6, 11), torch.tensor([3, IGNORED, 0, IGNORED, 10, 5])
    total, slope = smoothed(logits.clone(), right, 0.1)
    counts = right != IGNORED
    wanted, wanted_slope = smoothed(logits[counts], right[counts], 0.1)
    assert torch.equal(total, wanted)
    assert torch.equal(slope[counts], wanted_slope)
    assert not slope[~counts].any()


def test_on_a_cpu_what_is_shown_is_of_the_last_step() -> None:
    meter, one = Meter(CPU), torch.ones(())
    for step in range(1, 4):
        meter.add(step * one, 1, one, one < 0)
        meter.mark()
        assert meter.earlier() == meter.read()
        assert meter.earlier().tokens == step
