"""What must also hold of training on an accelerator; skipped where there is none.

On a GPU machine without pytest: `PYTHONPATH=src python tests/test_accelerator_training.py`.
"""

import contextlib
import copy
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch

import glassformer as gf
from glassformer.data.planning import Grid, Stream
from glassformer.models import t5
from glassformer.parts import adapt
from glassformer.parts.schemes import rotary
from glassformer.tasks.losses import IGNORED, consistent_loss, smoothed
from glassformer.tasks.objective import Objective
from glassformer.tasks.translation import PairBatch, translation_loss
from glassformer.training.averaging import RunningAverages
from glassformer.training.distribution import Distribution
from glassformer.training.meter import Meter
from glassformer.training.optimisers import optimiser
from glassformer.training.stepping import CapturedSteps, Setting, Steps, on_own_stream
from glassformer.training.tuning import choose
from test_accelerator import run_all

with contextlib.suppress(ImportError):
    import pytest

    pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device")


def test_captured_steps_change_the_weights_as_others_do() -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    sizes: dict[str, Any] = {"width": 64, "heads": 4, "layers": 1, "hidden": 128, "dropout": 0.0}
    cases: tuple[tuple[str, Any, dict[str, Any]], ...] = (
        ("adamw", gf.transformer, {}),
        ("muon", gf.transformer, {"positions": rotary}),
        ("adam", t5, {}),
    )
    for how, family, more in cases:
        torch.manual_seed(0)
        model: Any = family(60, **sizes, **more)
        one, two = (stepping(copy.deepcopy(model), how, kind) for kind in (Steps, CapturedSteps))
        with on_own_stream(torch.device("cuda")):
            for step in range(12):
                batch = pair_batch(step % 5)
                one.begin()
                one.add(batch, True)
                two.add(batch.fitted(Grid(64)).pin(), True)
                one.prepare(batch.targets)(1 / (step + 1))
                two.prepare(batch.targets)(1 / (step + 1))
            torch.cuda.synchronize()
        assert len(two._graphs) > 1
        start = dict(model.named_parameters())
        for name, weight in one.setting.objective.model.named_parameters():
            if name.endswith("key.bias"):  # whose gradient is nothing but rounding
                continue
            other, before = two.setting.objective.model.get_parameter(name), start[name].cuda()
            apart = float((other - weight).norm() / (weight - before).norm())
            assert apart < (0.1 if how == "muon" else 0.01), (how, name, apart)  # Muon computes in bf16


def compare_packed_steps(model: Any, precision: str, near: float, batches: int = 1) -> None:
    """Packed and captured steps of so many batches against padded ones that come one by one."""
    torch.backends.cuda.matmul.allow_tf32 = False
    stream = Stream((128, 128), sentences=8, longest=20, usual=16)
    one = stepping(copy.deepcopy(model), "adamw", Steps, precision)
    two = stepping(copy.deepcopy(model), "adamw", partial(CapturedSteps, lone=batches == 1), precision)
    with on_own_stream(torch.device("cuda")):
        for step in range(12):
            one.begin()
            targets = 0
            for number in range(batches):
                batch = pair_batch((step + number) % 5)
                one.add(batch, number + 1 == batches)
                two.add(batch.fitted(stream).pin(), number + 1 == batches)
                targets += batch.targets
            one.prepare(targets)(1 / (step + 1))
            two.prepare(targets)(1 / (step + 1))
        torch.cuda.synchronize()
    assert len(two._graphs) == 1
    learned = {name: weight for name, weight in one.setting.objective.model.named_parameters() if weight.requires_grad}
    for name, weight in learned.items():
        if name.endswith("key.bias"):  # whose gradient is nothing but rounding
            continue
        other, before = two.setting.objective.model.get_parameter(name), model.get_parameter(name).cuda()
        apart = float((other - weight).norm() / (weight - before).norm())
        assert apart < near, (precision, name, apart)


def test_packed_steps_change_the_weights_as_padded_ones_do() -> None:
    for precision, batches, near in (("float32", 1, 0.01), ("float32", 2, 0.01), ("bf16", 1, 0.15), ("bf16", 2, 0.25)):
        torch.manual_seed(0)
        model = gf.transformer(60, width=64, heads=4, layers=2, hidden=128, dropout=0.0)
        compare_packed_steps(model, precision, near, batches)


def test_packed_adapters_learn_as_padded_ones_do() -> None:
    for precision, near in (("float32", 0.01), ("bf16", 0.4)):
        torch.manual_seed(0)
        model = adapt(gf.transformer(60, width=64, heads=4, layers=2, hidden=128, dropout=0.0), rank=4)
        choose(model, "lora")
        compare_packed_steps(model, precision, near)


def test_what_is_shown_is_of_the_step_before_the_last() -> None:
    meter, one = Meter(torch.device("cuda")), torch.ones((), device="cuda")
    for step in range(1, 6):
        meter.add(step * one, 1, one, one < 0)
        meter.mark()
        assert meter.earlier().tokens == max(1, step - 1)
        assert meter.read().tokens == step


def stepping(model: Any, how: str, kind: Any, precision: str = "float32") -> Any:
    model, device = model.cuda().train(), torch.device("cuda")
    options: Any = SimpleNamespace(
        optimiser=how, lr=1e-3, muon_lr=1e-2, betas=(0.9, 0.98), weight_decay=0.01, clip=1.0, precision=precision
    )
    method, parameters = optimiser(model, options), [each for each in model.parameters() if each.requires_grad]
    objective = Objective(model, translation_loss, 0.1)
    measured = Distribution(device), Meter(device)
    return kind(Setting(objective, parameters, method, *measured, precision == "bf16", 1.0, RunningAverages(model)))


def pair_batch(seed: int) -> PairBatch:
    draw = torch.Generator().manual_seed(seed)
    lengths = torch.randint(2, 4 + 3 * seed, (2, 5), generator=draw).tolist()
    sides = [gf.pad([torch.randint(3, 60, (n,), generator=draw).tolist() for n in each]) for each in lengths]
    (source, source_mask), (target, target_mask) = sides
    read = torch.cat((torch.ones(5, 1, dtype=torch.long), target[:, :-1]), dim=1)
    counts = int(source_mask.sum()), int(target_mask.sum())
    return PairBatch(source, source_mask, read, target, target_mask, torch.arange(5), *counts)


def test_the_kernel_of_the_loss_equals_the_formula() -> None:
    torch.manual_seed(0)
    for dtype, near in ((torch.float32, 1e-5), (torch.bfloat16, 2e-2)):
        for words, smoothing in ((50, 0.1), (5000, 0.0), (32000, 0.1)):
            logits, right = (3 * torch.randn(70, words)).to(dtype), torch.randint(words, (70,))
            right[::7] = IGNORED
            wanted, slope = smoothed(logits.float(), right, smoothing)
            total, got = smoothed(logits.cuda(), right.cuda(), smoothing)
            torch.testing.assert_close(total.cpu(), wanted, rtol=1e-4 if dtype == torch.float32 else 1e-2, atol=1e-3)
            torch.testing.assert_close(got.float().cpu(), slope, rtol=near, atol=near)


def test_the_kernel_of_two_passes_equals_the_formula() -> None:
    torch.manual_seed(0)
    hidden, right = torch.randn(2, 40, 32), torch.randint(3000, (40,))
    right[::7] = IGNORED
    head = torch.nn.Linear(32, 3000)
    mask, slopes, totals = torch.ones(1, 40, dtype=torch.bool), [], []
    for device in ("cpu", "cuda"):
        own, passes = copy.deepcopy(head).to(device), hidden.to(device).requires_grad_(True)
        loss = consistent_loss(passes, right[None].to(device), mask.to(device), 40, own, 0.1, 3.0)
        totals.append(loss.detach().cpu())
        slopes.append(torch.autograd.grad(2 * loss, [passes, own.weight]))
    torch.testing.assert_close(totals[1], totals[0], rtol=1e-4, atol=1e-3)
    for got, wanted in zip(slopes[1], slopes[0], strict=True):
        torch.testing.assert_close(got.cpu(), wanted, rtol=1e-3, atol=1e-4)


if __name__ == "__main__":
    run_all(dict(globals()))
