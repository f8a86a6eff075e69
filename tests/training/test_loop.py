"""The loop: golden losses, accumulation, skipped steps, early stopping, signals."""

import math
import os
import signal
import threading
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from glassformer.errors import ConfigurationError, Stopped, TrainingError
from glassformer.tasks.translation import translation_loss
from glassformer.training import Checkpoints, Trainer

from .helpers import FakeBatches, batch, model, options

GOLDEN = {
    "adamw": [3.21861, 2.40734, 2.20711, 2.19272],
    "adam": [3.21873, 2.40745, 2.20706, 2.19263],
    "muon": [3.3952, 2.63124, 2.30538, 2.19343],
}


def trainer(folder: Path, dropout: float = 0.1, **changes: Any) -> Trainer:
    extra = {name: changes.pop(name) for name in ("validate", "log", "tick") if name in changes}
    return Trainer(model(dropout), FakeBatches(), options(**changes), folder, translation_loss, **extra)


def assert_close(ours: nn.Module, theirs: nn.Module) -> None:
    """The same weights, but for the biases of keys: their gradient is 0, and Adam makes steps of rounding errors."""
    for (name, mine), other in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        if not name.endswith("key.bias"):
            torch.testing.assert_close(mine, other, rtol=1e-3, atol=1e-4, msg=name)


@pytest.mark.parametrize("kind", ["adamw", "adam", "muon"])
def test_golden_losses(tmp_path: Path, kind: str) -> None:
    """Losses at a fixed seed: a change that should not alter results must not alter these."""
    records: list[dict[str, Any]] = []
    trainer(tmp_path, 0.0, steps=20, log_every=5, optimiser=kind, log=records.append).run()
    assert [record["loss"] for record in records] == pytest.approx(GOLDEN[kind], abs=1e-4)
    assert [record["step"] for record in records] == [5, 10, 15, 20]
    assert [record["epoch"] for record in records] == [0, 1, 2, 2]


def test_a_record_holds_all_that_a_progress_bar_shows(tmp_path: Path) -> None:
    records: list[dict[str, Any]] = []
    ticks: list[dict[str, Any]] = []
    trainer(tmp_path, steps=4, log_every=3, log=records.append, tick=ticks.append).run()
    words = {"step", "epoch", "tokens", "loss", "lr", "norm", "skipped"}
    words |= {"tokens_per_s", "padding", "elapsed", "eta", "memory"}
    assert [record.keys() for record in records] == [words, words]
    assert [tick["step"] for tick in ticks] == [1, 2, 3, 4]
    assert records[0]["lr"] == pytest.approx(1e-2 * 3 / 4)
    assert records[-1]["eta"] == 0
    assert 0 < records[0]["padding"] < 1
    assert 2**24 < records[0]["memory"] <= records[1]["memory"]  # PyTorch alone is more than this


def test_the_first_loss_is_the_mean_over_real_tokens_of_both_batches(tmp_path: Path) -> None:
    records: list[dict[str, Any]] = []
    net, batches, losses, tokens = model(0.0), iter(FakeBatches()), 0.0, 0
    for some in (next(batches), next(batches)):
        logits = net(some.source, some.target_in, some.source_mask)
        wanted = some.target_out.masked_fill(~some.target_mask, -100).flatten()
        losses += F.cross_entropy(logits.flatten(0, 1), wanted, reduction="sum", label_smoothing=0.1).item()
        tokens += some.targets
    trainer(tmp_path, 0.0, steps=1, accumulate=2, log=records.append).run()
    assert records[0]["loss"] == pytest.approx(losses / tokens, abs=1e-5)


def test_two_batches_accumulated_are_one_twice_as_large(tmp_path: Path) -> None:
    class Merged(FakeBatches):
        def __iter__(self) -> Any:
            halves = [
                [row[keep].tolist() for row, keep in zip(some.source, some.source_mask, strict=True)]
                for some in FakeBatches()
            ]
            for first, second in zip(halves[::2], halves[1::2], strict=False):
                yield batch(first + second)

    nets = model(0.0), model(0.0)
    twice, once = options(steps=3, accumulate=2, clip=0.1), options(steps=3, clip=0.1)
    Trainer(nets[0], FakeBatches(), twice, tmp_path / "a", translation_loss).run()
    Trainer(nets[1], Merged(), once, tmp_path / "b", translation_loss).run()
    assert_close(*nets)


@pytest.mark.parametrize("clip", [0.0, 0.05])
def test_one_step_is_torchs_own(tmp_path: Path, clip: float) -> None:
    ours, theirs = model(0.0), model(0.0)
    wish = options(steps=1, warmup=0, clip=clip, optimiser="adamw")
    Trainer(ours, FakeBatches(), wish, tmp_path, translation_loss).run()
    some = next(iter(FakeBatches()))
    matrices = [p for p in theirs.parameters() if p.dim() > 1]
    rest = [p for p in theirs.parameters() if p.dim() <= 1]
    groups: list[dict[str, Any]] = [{"params": matrices}, {"params": rest, "weight_decay": 0}]
    reference = torch.optim.AdamW(groups, 1e-2, (0.9, 0.98))
    wanted = some.target_out.masked_fill(~some.target_mask, -100).flatten()
    logits = theirs(some.source, some.target_in, some.source_mask).flatten(0, 1)
    F.cross_entropy(logits, wanted, label_smoothing=0.1).backward()  # type: ignore[no-untyped-call]
    if clip:
        nn.utils.clip_grad_norm_(theirs.parameters(), clip)
    reference.step()
    assert_close(ours, theirs)


class Poison(nn.Module):
    """A norm that lets through NaN at some of the forward passes."""

    def __init__(self, inner: nn.Module, when: Collection[int]) -> None:
        super().__init__()
        self.inner, self.when, self.passes = inner, when, 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.passes += 1
        return self.inner(x) * (math.nan if self.passes in self.when else 1.0)  # type: ignore[no-any-return]


def poisoned(folder: Path, when: Collection[int], **changes: Any) -> Trainer:
    net = model()
    net.decoder.norm = Poison(net.decoder.get_submodule("norm"), when)
    log = changes.pop("log", None)
    return Trainer(net, FakeBatches(), options(**changes), folder, translation_loss, log=log)


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_steps_that_are_not_finite_are_skipped_and_counted(tmp_path: Path, kind: str) -> None:
    records: list[dict[str, Any]] = []
    made = poisoned(tmp_path, range(3, 6), steps=9, log=records.append, optimiser=kind, ema=0.9)
    made.run()
    assert [record["skipped"] for record in records] == [0, 2, 3, 3, 3]
    assert math.isnan(records[1]["loss"])
    assert all(math.isfinite(records[n]["loss"]) for n in (0, 2, 3))
    assert all(parameter.isfinite().all() for parameter in made.model.parameters())


def test_too_many_in_a_row_stop_with_advice_and_clean_weights(tmp_path: Path) -> None:
    made = poisoned(tmp_path, range(3, 99), steps=20, max_bad_steps=5, save_every=2)
    with pytest.raises(TrainingError, match=r"5 steps in a row .* at step 7; .*lower train\.lr"):
        made.run()
    assert all(parameter.isfinite().all() for parameter in made.model.parameters())


def test_a_few_in_a_row_again_and_again_do_not_stop(tmp_path: Path) -> None:
    assert poisoned(tmp_path, [2, 3, 5, 6, 8, 9], steps=12, max_bad_steps=3).run().step == 12


def test_patience_ends_training_and_the_best_weights_are_used(tmp_path: Path) -> None:
    values = iter([3.0, 2.0, math.nan, 2.5, 2.4, 9.0])
    seen: list[torch.Tensor] = []
    records: list[dict[str, Any]] = []

    def validate(net: nn.Module) -> dict[str, float]:
        assert not net.training
        assert not torch.is_grad_enabled()
        seen.append(next(net.parameters()).clone())
        return {"loss": next(values), "bleu": 1.0}

    made = trainer(tmp_path, steps=50, validate_every=2, patience=3, validate=validate, log=records.append, keep=1)
    outcome = made.run()
    assert (outcome.step, outcome.best, outcome.reason, outcome.weights.step) == (10, 2.0, "patience", 4)
    assert torch.equal(next(made.model.parameters()), seen[1])
    assert [record["valid_loss"] for record in records if "valid_loss" in record][:2] == [3.0, 2.0]
    assert [one.step for one in Checkpoints(tmp_path).all()] == [4, 10]


def test_higher_is_better_for_scores_and_an_absent_one_is_refused(tmp_path: Path) -> None:
    values = iter([1.0, 5.0, 4.0])
    outcome = trainer(
        tmp_path / "a", steps=3, validate_every=1, watch="bleu", validate=lambda _: {"bleu": next(values)}
    ).run()
    assert outcome.best == 5.0
    with pytest.raises(ConfigurationError, match=r'train\.watch is "bleu", but validation returns only loss'):
        trainer(tmp_path / "b", steps=3, validate_every=1, watch="bleu", validate=lambda _: {"loss": 1.0}).run()


def test_validation_sees_the_moving_average_and_training_goes_on_without_it(tmp_path: Path) -> None:
    seen: list[torch.Tensor] = []

    def validate(net: nn.Module) -> dict[str, float]:
        seen.append(next(net.parameters()).clone())
        return {"loss": -len(seen)}

    watched = trainer(tmp_path / "a", steps=6, ema=0.99, validate_every=2, validate=validate)
    assert watched.run().weights.checkpoints[0].has("average")
    plain = trainer(tmp_path / "b", steps=6, ema=0.99)
    plain.run()
    assert torch.equal(seen[-1], next(watched.model.parameters()))
    last = [Checkpoints(tmp_path / name).at(6) for name in "ab"]
    assert all(torch.equal(last[0].tensors("model")[name], value) for name, value in last[1].tensors("model").items())
    assert not torch.equal(last[0].tensors("model")["encoder.embedding.weight"], seen[-1])


def test_the_last_checkpoints_are_averaged_at_the_end(tmp_path: Path) -> None:
    made = trainer(tmp_path, steps=8, save_every=2, average=3, keep=1)
    assert made.run().weights.name == "the mean of its last 3 checkpoints"
    saved = [one.tensors("model")["encoder.norm.weight"] for one in Checkpoints(tmp_path).all()]
    assert len(saved) == 3
    torch.testing.assert_close(made.model.state_dict()["encoder.norm.weight"], sum(saved) / 3)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_stops(tmp_path: Path, number: int) -> None:
    usual = signal.getsignal(number)
    made = trainer(tmp_path, steps=99, tick=lambda tick: os.kill(os.getpid(), number) if tick["step"] == 5 else None)
    with pytest.raises(Stopped) as stopped:
        made.run()
    assert stopped.value.signal == number
    assert [one.step for one in Checkpoints(tmp_path).all()] == [4, stopped.value.step]
    assert stopped.value.step in (5, 6)
    assert signal.getsignal(number) == usual


def test_it_trains_in_a_thread_too(tmp_path: Path) -> None:
    made = trainer(tmp_path, steps=2)
    thread = threading.Thread(target=made.run)
    thread.start()
    thread.join()
    assert made.step == 2


def test_data_without_a_batch_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="nothing to train on"):
        Trainer(model(), FakeBatches(count=0), options(), tmp_path, translation_loss).run()


def test_a_folder_in_use_is_not_begun_anew(tmp_path: Path) -> None:
    trainer(tmp_path, steps=2).run()
    with pytest.raises(TrainingError, match="already holds checkpoints: resume"):
        trainer(tmp_path, steps=2).run()


def test_bf16_learns(tmp_path: Path) -> None:
    records: list[dict[str, Any]] = []
    trainer(tmp_path, steps=30, log_every=10, precision="bf16", log=records.append).run()
    assert records[-1]["loss"] < records[0]["loss"]
    assert all(value.dtype == torch.float32 for value in Checkpoints(tmp_path).at(30).tensors("model").values())
