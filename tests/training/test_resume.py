"""A killed run goes on to the very same weights."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from glassformer.errors import Stopped, TrainingError
from glassformer.stopping import Interrupted, SignalListener
from glassformer.tasks.translation import translation_loss
from glassformer.training import Checkpoints, Trainer
from glassformer.training.checkpoints import BEST, NEWEST
from glassformer.training.optimisers import orthogonal

from .helpers import FakeBatches, model, options

TESTS = Path(__file__).parents[1]


def run(folder: Path, resume: bool = False, **changes: Any) -> Trainer:
    told: dict[str, Any] = {name: changes.pop(name) for name in ("log", "tick") if name in changes}
    told["validate"] = lambda _: {"loss": 1.0}
    trainer = Trainer(model(), FakeBatches(), options(**changes), folder, translation_loss, **told)
    trainer.run(resume)
    return trainer


def assert_same(first: Path, second: Path, step: int) -> None:
    """Two runs at a step: weights, averages, place, random numbers."""
    one, other = (Checkpoints(folder).at(step) for folder in (first, second))
    for name in ("model", "optimiser", "average"):
        if one.has(name):
            ours, theirs = one.tensors(name), other.tensors(name)
            assert ours.keys() == theirs.keys()
            assert all(torch.equal(ours[key], theirs[key]) for key in ours)
    states = [{key: value for key, value in each.state().items() if key != "elapsed"} for each in (one, other)]
    assert states[0] == states[1]


def test_killed_and_resumed_is_as_if_nothing_had_been(tmp_path: Path) -> None:
    wish: dict[str, Any] = {
        "steps": 200,
        "optimiser": "muon",
        "ema": 0.99,
        "accumulate": 2,
        "save_every": 20,
        "validate_every": 30,
    }
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    run(straight, **wish)
    command = [sys.executable, "-m", "training.worker", json.dumps([wish | {"folder": str(killed)}])]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=TESTS)  # noqa: S603
    assert process.stdout is not None
    for line in process.stdout:
        if int(line) == 107:  # neither saved nor the end of an epoch
            process.send_signal(signal.SIGKILL)
            break
    assert process.wait() == -signal.SIGKILL
    process.stdout.close()
    saved = [one.step for one in Checkpoints(killed).all()]
    assert saved[-1] >= 100
    assert saved[-1] < 200
    run(killed, resume=True, **wish)
    assert_same(straight, killed, 200)


@pytest.mark.parametrize("kind", ["adamw", "adam"])
def test_stopped_by_a_signal_and_resumed_is_as_if_nothing_had_been(tmp_path: Path, kind: str) -> None:
    wish: dict[str, Any] = {"steps": 12, "optimiser": kind, "save_every": 100}
    run(tmp_path / "a", **wish)
    with pytest.raises(Stopped):
        run(
            tmp_path / "b",
            **wish,
            tick=lambda tick: os.kill(os.getpid(), signal.SIGTERM) if tick["step"] == 4 else None,
        )
    run(tmp_path / "b", resume=True, **wish)
    assert_same(tmp_path / "a", tmp_path / "b", 12)


@pytest.mark.parametrize("stops", [[6], [6, 7], [10], [8], [5, 9, 11]])
def test_what_a_stop_has_saved_is_not_part_of_the_mean_of_checkpoints(tmp_path: Path, stops: list[int]) -> None:
    wish: dict[str, Any] = {"steps": 12, "save_every": 4, "validate_every": 5, "average": 3, "keep": 1}
    straight = run(tmp_path / "a", **wish)
    for number, stop in enumerate(stops):

        def tick(record: dict[str, Any], stop: int = stop) -> None:
            if record["step"] == stop:
                os.kill(os.getpid(), signal.SIGTERM)

        with pytest.raises(Stopped):
            run(tmp_path / "b", resume=number > 0, **wish, tick=tick)
        assert Checkpoints(tmp_path / "b").all()[-1].step == stop
    resumed = run(tmp_path / "b", resume=True, **wish)
    ours, theirs = straight.model.state_dict(), resumed.model.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert_same(tmp_path / "a", tmp_path / "b", 12)
    one, other = (Checkpoints(tmp_path / name).all() for name in ("a", "b"))
    assert [each.step for each in one] == [each.step for each in other]


def test_a_step_that_a_signal_interrupts_is_taken_again(tmp_path: Path) -> None:
    """Its batch and its random numbers are those of an undisturbed training."""

    def train(name: str, stop: bool = False, resume: bool = False) -> None:
        losses: list[Tensor] = []

        def loss(model: Any, batch: Any) -> Tensor:
            losses.append(torch.rand(()))  # as dropout draws
            if stop and len(losses) == 5:
                os.kill(os.getpid(), signal.SIGTERM)
                pytest.fail("the signal was not heard")
            return translation_loss(model, batch) * losses[-1]

        Trainer(model(), FakeBatches(), options(steps=9, save_every=100), tmp_path / name, loss).run(resume)

    train("a")
    with pytest.raises(Stopped, match="state saved at step 4"):
        train("b", stop=True)
    train("b", resume=True)
    assert_same(tmp_path / "a", tmp_path / "b", 9)


def test_a_step_that_a_signal_interrupts_in_the_optimiser_is_taken_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Muon works longest of all: it is broken off before it has changed anything."""
    wish: dict[str, Any] = {"steps": 9, "optimiser": "muon", "save_every": 100}
    run(tmp_path / "a", **wish)
    calls = 0

    def interrupted(matrices: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        if calls == 8:  # the second stack of matrices of step 4
            os.kill(os.getpid(), signal.SIGTERM)
            pytest.fail("the signal was not heard")
        return orthogonal(matrices)

    with monkeypatch.context() as patch:
        patch.setattr("glassformer.training.optimisers.orthogonal", interrupted)
        with pytest.raises(Stopped, match="state saved at step 3"):
            run(tmp_path / "b", **wish)
    run(tmp_path / "b", resume=True, **wish)
    assert_same(tmp_path / "a", tmp_path / "b", 9)


@pytest.mark.parametrize("call", range(4))  # the swaps before and after two validations
def test_a_signal_while_averages_take_the_place_of_weights_spoils_neither(
    tmp_path: Path, call: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    wish: dict[str, Any] = {"steps": 9, "ema": 0.5, "validate_every": 3, "save_every": 100}
    run(tmp_path / "a", **wish)
    copy, count = torch._foreach_copy_, iter(range(1_000))

    def interrupted(*tensors: Any) -> None:
        copy(*tensors)
        if next(count) == 2 * call:  # the first of the two copies of a swap
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(torch, "_foreach_copy_", interrupted)
    with pytest.raises(Stopped):
        run(tmp_path / "b", **wish)
    monkeypatch.undo()
    run(tmp_path / "b", resume=True, **wish)
    assert_same(tmp_path / "a", tmp_path / "b", 9)


def test_a_signal_that_is_heard_in_the_code_behind_with_is_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path / "a", steps=9, save_every=100)
    enter, count = SignalListener.interrupting, iter(range(1_000))

    @contextmanager
    def interrupting(self: SignalListener, save: Any = None) -> Iterator[None]:
        with enter(self, save):
            yield
        if next(count) == 4:
            self.received = signal.SIGTERM
            raise Interrupted

    monkeypatch.setattr(SignalListener, "interrupting", interrupting)
    with pytest.raises(Stopped, match="state saved at step 4"):
        run(tmp_path / "b", steps=9, save_every=100)
    run(tmp_path / "b", resume=True, steps=9, save_every=100)
    assert_same(tmp_path / "a", tmp_path / "b", 9)


def test_what_was_counted_before_a_stop_is_told_after_it(tmp_path: Path) -> None:
    straight: list[dict[str, Any]] = []
    resumed: list[dict[str, Any]] = []
    run(tmp_path / "a", log=straight.append, steps=10, log_every=5)
    with pytest.raises(Stopped):
        run(
            tmp_path / "b",
            steps=10,
            log_every=5,
            tick=lambda tick: os.kill(os.getpid(), signal.SIGTERM) if tick["step"] == 7 else None,
        )
    run(tmp_path / "b", resume=True, log=resumed.append, steps=10, log_every=5)
    assert [each["step"] for each in resumed if "loss" in each] == [10]
    for key in ("loss", "padding"):
        assert resumed[0][key] == straight[1][key]  # to the last digit
    assert resumed[0]["tokens_per_s"] > 0


def test_a_validation_that_a_signal_interrupts_is_done_when_training_goes_on(tmp_path: Path) -> None:
    seen: list[float] = []

    def validate(stop: bool) -> Callable[[nn.Module], dict[str, float]]:
        def work(model: nn.Module) -> dict[str, float]:
            seen.append(torch.rand(()).item())  # which must not be drawn twice
            if stop and len(seen) == 2:
                os.kill(os.getpid(), signal.SIGTERM)
                pytest.fail("the signal was not heard")
            return {"loss": seen[-1]}

        return work

    def train(name: str, stop: bool = False, resume: bool = False) -> None:
        wish = options(steps=9, validate_every=3, save_every=100)
        Trainer(model(), FakeBatches(), wish, tmp_path / name, translation_loss, validate(stop)).run(resume)

    train("a")
    straight = [*seen]
    seen.clear()
    with pytest.raises(Stopped, match="state saved at step 6"):
        train("b", stop=True)
    train("b", resume=True)
    assert [*seen[:1], *seen[2:]] == straight
    assert_same(tmp_path / "a", tmp_path / "b", 9)


def test_a_signal_at_the_very_end_is_not_lost(tmp_path: Path) -> None:
    def stop_at_the_end(record: dict[str, Any]) -> None:
        if record["step"] == 4:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Stopped, match="state saved at step 4"):
        run(tmp_path, steps=4, log=stop_at_the_end)
    run(tmp_path, steps=4, resume=True)


def test_a_damaged_checkpoint_costs_only_its_steps(tmp_path: Path) -> None:
    run(tmp_path / "a", steps=8)
    run(tmp_path / "b", steps=8)
    newest = Checkpoints(tmp_path / "b").at(8).path / "model.safetensors"
    newest.write_bytes(newest.read_bytes()[:-10])
    with pytest.warns(UserWarning, match="step-00000008 is damaged: model.safetensors"):
        run(tmp_path / "b", resume=True, steps=8)
    assert_same(tmp_path / "a", tmp_path / "b", 8)


def test_a_damaged_best_checkpoint_gives_way_to_the_last(tmp_path: Path) -> None:
    values = iter([1.0, 2.0, 3.0])
    wish = options(steps=6, validate_every=2, save_every=2)
    trainer = Trainer(model(), FakeBatches(), wish, tmp_path, translation_loss, lambda _: {"loss": next(values)})
    assert trainer.run().weights.name == BEST
    best = Checkpoints(tmp_path).at(2).path / "model.safetensors"
    best.write_bytes(best.read_bytes()[:100])
    again = Trainer(model(), FakeBatches(), wish, tmp_path, translation_loss)
    with pytest.warns(UserWarning, match="step-00000002 is damaged"):
        assert again.run(resume=True).weights.name == NEWEST
    last = Checkpoints(tmp_path).at(6).tensors("model")
    assert all(torch.equal(again.model.state_dict()[name], value) for name, value in last.items())


def test_what_ended_for_want_of_progress_has_ended(tmp_path: Path) -> None:
    wish = options(steps=50, validate_every=2, patience=2)
    for resume in (False, True):
        trainer = Trainer(model(), FakeBatches(), wish, tmp_path, translation_loss, lambda _: {"loss": 1.0})
        outcome = trainer.run(resume)
        assert (outcome.step, outcome.reason) == (6, "patience")


def test_where_all_are_damaged_training_does_not_begin_anew(tmp_path: Path) -> None:
    run(tmp_path, steps=2)
    (Checkpoints(tmp_path).at(2).path / "state.json").unlink()
    with (
        pytest.warns(UserWarning, match="damaged"),
        pytest.raises(TrainingError, match="holds only damaged checkpoints"),
    ):
        run(tmp_path, resume=True, steps=2)


def test_to_resume_what_never_began_is_to_begin(tmp_path: Path) -> None:
    assert run(tmp_path, resume=True, steps=2).step == 2


def test_a_finished_run_is_resumed_to_more_steps_or_to_nothing(tmp_path: Path) -> None:
    run(tmp_path / "a", steps=4, schedule="constant")
    run(tmp_path / "a", steps=4, schedule="constant", resume=True)
    run(tmp_path / "a", steps=8, schedule="constant", resume=True)
    run(tmp_path / "b", steps=8, schedule="constant", validate_every=4)
    ours, theirs = (Checkpoints(tmp_path / name).at(8).tensors("model") for name in "ab")
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)
