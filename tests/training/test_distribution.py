"""Several processes train as one: DDP and FSDP2, over gloo."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from glassformer.recipe import RecipeWarning
from glassformer.tasks.translation import translation_loss
from glassformer.training import Checkpoints, Trainer
from glassformer.training.budget import read_budget
from glassformer.training.distribution import distribution

from .helpers import FakeBatches, model, options, tuned
from .test_resume import TESTS

pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="PyTorch without distribution")

Both = tuple[Path, list[tuple[int, str]]]
WAYS = [("ddp", "adamw"), ("ddp", "muon"), ("fsdp", "adamw"), ("fsdp", "muon")]
TUNED: list[tuple[str, dict[str, Any]]] = [
    (strategy, wish) for strategy in ("ddp", "fsdp") for wish in ({"mode": "lora"}, {"mode": "unfreeze", "unfreeze": 2})
]
WISH: dict[str, Any] = {"dropout": 0.0, "ema": 0.9, "lr": 3e-3, "clip": 0.5, "validate_every": 3}


def test_a_strategy_without_torchrun_is_said_to_have_no_effect() -> None:
    told = r"train\.strategy has no effect: a single process trains"
    with pytest.warns(RecipeWarning, match=told), distribution("cpu", "fsdp") as single:
        assert single.world == 1


def launch(wishes: list[dict[str, Any]]) -> list[tuple[int, str]]:
    """Train in two processes, with torchrun's environment but without its start-up: exit codes and outputs."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "training.worker", json.dumps(wishes)]
    where = os.environ | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    processes = [
        subprocess.Popen(  # noqa: S603
            command,
            env=where | {"RANK": str(rank), "OMP_NUM_THREADS": "1"},
            cwd=TESTS,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        texts = [process.communicate(timeout=100)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [(process.returncode, text) for process, text in zip(processes, texts, strict=True)]


def alone(folder: Path, **wish: Any) -> None:
    """The same by one process, which takes in a step what two would."""
    wish = WISH | wish
    made, unfreeze = tuned(model(wish.pop("dropout")), wish.pop("mode", "full")), wish.pop("unfreeze", 0)
    told = (translation_loss, lambda _: {"loss": 1.0})
    trainer = Trainer(made, FakeBatches(), options(**wish), folder, *told, unfreeze=unfreeze)
    trainer.run(resume=True)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[tuple[int, str]]]:
    """All that two processes do in these tests, one after the other: to start them takes longer than to train."""
    top, wishes = tmp_path_factory.mktemp("ranks"), []
    for strategy, kind in WAYS:  # from nothing, and from where one process has left off
        alone(top / f"{strategy}-{kind}-one-two", optimiser=kind, steps=4, accumulate=4)
        for name, steps in (("two-one", 4), ("one-two", 8)):
            folder = str(top / f"{strategy}-{kind}-{name}")
            some = {"folder": folder, "resume": True, "steps": steps, "accumulate": 2}
            wishes.append(WISH | some | {"optimiser": kind, "strategy": strategy})
    for strategy, wish in TUNED:
        place = {"folder": str(top / f"{strategy}-{wish['mode']}"), "strategy": strategy}
        wishes.append(WISH | wish | place | {"steps": 4, "accumulate": 2})
    wishes.append({"folder": str(top / "stopped"), "steps": 50, "validate_every": 3, "stop": True})
    (top / "unwritable").mkdir()
    (top / "unwritable" / "checkpoints").write_text("a file where a folder should be")
    wishes.append({"folder": str(top / "unwritable"), "steps": 4})
    for strategy in ("ddp", "fsdp"):
        once = {"folder": str(top / f"poisoned-{strategy}"), "poison": [1, 3, 3], "strategy": strategy}
        always = {"folder": str(top / f"hopeless-{strategy}"), "poison": [1, 3, 99], "strategy": strategy}
        wishes += [once | {"steps": 5}, always | {"steps": 50, "max_bad_steps": 3}]
    wishes.append({"folder": str(top / "minutes"), "minutes": 0.01, "accumulate": 2, "schedule": "cosine"})
    wishes.append({"folder": str(top / "failed"), "fail": 1})
    return top, launch(wishes)


@pytest.mark.parametrize(("strategy", "kind"), WAYS)
def test_two_processes_train_as_one_and_hand_over_to_each_other(both: Both, strategy: str, kind: str) -> None:
    folders = both[0]
    alone(folders / f"{strategy}-{kind}-two-one", optimiser=kind, steps=8, accumulate=4)
    alone(folders / f"{strategy}-{kind}", optimiser=kind, steps=8, accumulate=4)
    expected = Checkpoints(folders / f"{strategy}-{kind}").at(8)
    for name in ("two-one", "one-two"):
        found = Checkpoints(folders / f"{strategy}-{kind}-{name}").at(8)
        assert found.state()["batches"] == expected.state()["batches"]
        for file in ("model", "average", "optimiser"):
            ours, theirs = found.tensors(file), expected.tensors(file)
            assert ours.keys() == theirs.keys()
            for key, value in ours.items():
                if "key.bias" not in key:  # its gradient is 0 but for rounding, of which Adam makes steps
                    torch.testing.assert_close(value, theirs[key], rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize(("strategy", "wish"), TUNED)
def test_two_processes_leave_alone_what_one_would(both: Both, strategy: str, wish: dict[str, Any]) -> None:
    folder = both[0] / f"{strategy}-{wish['mode']}"
    alone(folder.with_name(f"{folder.name}-alone"), **wish, steps=4, accumulate=4)
    begun = tuned(model(), wish["mode"]).state_dict()
    ours, theirs = (Checkpoints(each).at(4).tensors("model") for each in (folder, Path(f"{folder}-alone")))
    still = [{name for name in each if torch.equal(each[name], begun[name])} for each in (ours, theirs)]
    assert still[0] == still[1] != set()
    for name, value in ours.items():
        if "key.bias" not in name:
            torch.testing.assert_close(value, theirs[name], rtol=2e-3, atol=2e-4)


def test_a_signal_to_one_rank_stops_all_after_the_same_step(both: Both) -> None:
    step = Checkpoints(both[0] / "stopped").all()[-1].step
    assert step < 10
    assert all(
        f"Stopped: stopped by SIGTERM; state saved at step {step}: continue with --resume" in text
        for _, text in both[1]
    )


def test_all_ranks_take_the_steps_that_rank_0_has_found_to_fit(both: Both) -> None:
    measured = read_budget(both[0] / "minutes")
    assert measured is not None
    steps = measured.steps(options(minutes=0.01, accumulate=2))
    assert steps > measured.step
    assert Checkpoints(both[0] / "minutes").all()[-1].step == steps


def test_a_failure_of_rank_0_to_write_is_told_to_all(both: Both) -> None:
    first, second = (text for _, text in both[1])
    assert "cannot be written: [Errno 17] File exists" in first
    assert "TrainingError: rank 0 failed" in second


def test_the_failure_of_any_rank_ends_all(both: Both) -> None:
    (first, complaint), (second, text) = both[1]
    assert (first, second) == (1, 1)
    assert complaint.splitlines()[-1] == (
        "TrainingError: rank 0 has lost another rank: see that one's own error message, then continue with --resume"
    )
    assert "Traceback" not in complaint
    assert "InputError: the target holds the id 99" in text


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_a_loss_that_is_not_finite_on_one_rank_is_skipped_by_all(both: Both, strategy: str) -> None:
    saved = Checkpoints(both[0] / f"poisoned-{strategy}").at(5)
    assert saved.state()["meter"][2] == 1  # skipped steps
    assert all(tensor.isfinite().all() for tensor in saved.tensors("model").values())
    for _, text in both[1]:
        assert text.count("TrainingError: the loss or its gradient was not finite in 3 steps in a row") == 2
