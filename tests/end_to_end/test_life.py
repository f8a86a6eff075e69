"""The life of a run, in processes of their own: trained, killed, resumed, used."""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from glassformer.runs import train
from glassformer.runs.metrics import read_metrics
from glassformer.tasks.translation import Translator
from tiny import IDLE, recipe

from .helpers import COMMAND, Command, complains, end, start, write

LONG: dict[str, Any] = {"steps": 200, "save_every": 30, "validate_every": 100, "log_every": 10, "ema": 0.9}


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing interrupted, beside its recipe."""
    folder = tmp_path_factory.mktemp("life")
    made = recipe(IDLE, {"train": LONG})
    write(folder / "my.toml", made)
    train(made, folder / "straight")
    return folder


def wait_for(step: int, folder: Path) -> None:
    """Until a training has come to a step."""
    late = time.monotonic() + 100
    while time.monotonic() < late:
        metrics = folder / "metrics.jsonl"
        if metrics.exists() and metrics.read_text().count("\n") >= step // 10:
            return
        time.sleep(0.01)
    pytest.fail(f"{folder} has not come to step {step}")


def same(first: Path, second: Path) -> None:
    """Two runs: their weights bit for bit, and what was measured but for time."""
    ours, theirs = (load_file(folder / "model.safetensors") for folder in (first, second))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    one, other = read_metrics(first), read_metrics(second)
    assert [each["step"] for each in one] == [each["step"] for each in other]
    for key in ("loss", "lr", "norm", "skipped", "valid_loss", "valid_bleu", "valid_exact"):
        values = [[each[key] for each in records if key in each] for records in (one, other)]
        assert values[0] == values[1]
        assert values[0]


def test_killed_and_resumed_is_as_if_nothing_had_been(straight: Path) -> None:
    killed, mine = straight / "killed", straight / "my.toml"
    process = start("train", mine, "--out", killed)
    wait_for(50, killed)
    process.kill()
    assert end(process).code == -signal.SIGKILL
    assert not (killed / "model.safetensors").exists()
    last = max(path.name for path in (killed / "checkpoints").glob("step-*"))
    assert "step-00000030" <= last < "step-00000200"
    answer = end(start("train", mine, "--out", killed, "--resume"))
    assert answer.code == 0, answer.err
    same(straight / "straight", killed)
    assert {path.name for path in killed.iterdir()} >= {"attention.png", "loss.png", "log.txt", "environment.json"}
    assert f"The run is in {killed}" in answer.out
    assert f"glassformer evaluate --run {killed}" in answer.out
    assert "step 200: validation  loss" in answer.err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_asked_to_stop_it_saves_and_says_so(straight: Path, command: Command, number: int, code: int) -> None:
    stopped, mine = straight / f"stopped-{code}", straight / "my.toml"
    process = start("train", mine, "--out", stopped)
    wait_for(50, stopped)
    process.send_signal(number)
    answer = end(process)
    assert answer.code == code
    last = max(path.name for path in (stopped / "checkpoints").glob("step-*"))
    step = int(last.removeprefix("step-"))
    assert step < 200
    assert "Traceback" not in answer.err
    name = "Ctrl-C" if number == signal.SIGINT else "SIGTERM"
    complaint = f"glassformer: stopped by {name}; state saved at step {step}: continue with --resume"
    assert answer.err.splitlines()[-1] == complaint
    for words in ((), ("--checkpoint", "last")):
        answer = command("translate", "--run", stopped, *words, "a b c")
        assert answer.code == 0, answer.err
        assert "checkpoint, step " in answer.err
        assert " of 200" in answer.err
    complains(command("translate", "--run", stopped, "--checkpoint", "7", "a"), 2, "has no checkpoint of step 7")
    if number == signal.SIGTERM:
        assert command("train", mine, "--out", stopped, "--resume").code == 0
        same(straight / "straight", stopped)


def test_a_run_in_training_is_not_resumed_by_a_second_process(straight: Path, command: Command) -> None:
    running, mine = straight / "running", straight / "my.toml"
    process = start("train", mine, "--out", running)
    wait_for(50, running)
    process.send_signal(signal.SIGSTOP)  # else it may be done first
    try:
        answer = command("train", mine, "--out", running, "--resume")
    finally:
        process.send_signal(signal.SIGCONT)
    complains(answer, 2, "running is being trained by another process")
    assert end(process).code == 0
    same(straight / "straight", running)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_asked_to_stop_while_it_prepares_it_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, code: int
) -> None:
    cache, out = tmp_path / "cache", tmp_path / "runs" / "out"
    monkeypatch.setenv("GLASSFORMER_CACHE", str(cache))
    mine = write(tmp_path / "my.toml", recipe(IDLE, {"source": {"count": 5_000_000, "length": 50}}))
    process = start("train", mine, "--out", out)
    late = time.monotonic() + 100
    while not list(cache.glob(".making-*/corpus/train.jsonl")) and time.monotonic() < late:
        time.sleep(0.01)
    process.send_signal(number)
    answer = end(process)
    assert (answer.code, answer.out) == (code, "")
    assert "Traceback" not in answer.err
    assert list(cache.iterdir()) == []
    assert not out.parent.exists()


OPENING = """
import os, signal
from glassformer.stopping import stoppable

def opening():
    file = open(os.devnull, "wb")
    os.kill(os.getpid(), signal.SIGTERM)
    file.close()

with stoppable():
    opening()
"""


def test_asked_to_stop_while_a_file_is_being_opened_it_says_nothing_of_that() -> None:
    answer = end(start(launcher=[sys.executable, "-c", OPENING]))
    assert (answer.code, answer.out, answer.err) == (143, "", "")


SLOW = "import time; open({sign!r}, 'w').close(); time.sleep(100)"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_asked_to_stop_while_libraries_load_it_stops_in_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, code: int
) -> None:
    sign = tmp_path / "loading"
    (tmp_path / "torch.py").write_text(SLOW.format(sign=str(sign)), encoding="utf-8")  # in the place of the real one
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    process = start("translate", "--run", tmp_path)
    late = time.monotonic() + 100
    while not sign.exists() and time.monotonic() < late:
        time.sleep(0.01)
    process.send_signal(number)
    answer = end(process)
    assert (answer.code, answer.out, answer.err) == (code, "", "")


def test_lines_through_a_pipe(trained: Translator) -> None:
    lines = ["a b c", "", "d", "e f g h", "  ", "h"]
    answer = end(start("translate", "--run", str(trained.path)), "\n".join(lines) + "\n")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out == "a b c\n\nd\ne f g h\n\nh\n"


def test_what_is_written_is_utf_8_wherever_it_goes(trained: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    answer = end(start("recipes"))
    assert (answer.code, answer.err) == (0, "")
    assert "dates in many languages → ISO 8601" in answer.out


def test_somebody_who_has_seen_enough_is_no_reason_to_crash(trained: Translator) -> None:
    process = start("translate", "--run", str(trained.path), "--stream")
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("a b\n" * 400)
    process.stdin.flush()
    assert process.stdout.readline() == "a b\n"
    process.stdout.close()
    process.stdin.close()
    assert process.stderr is not None
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait(100) == 0


def test_two_processes_train_one_run(tmp_path: Path, command: Command) -> None:
    mine = write(tmp_path / "my.toml", recipe(IDLE, {"train": {"steps": 6}}))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    process = start("train", mine, "--out", tmp_path / "run", launcher=[*torchrun, *COMMAND[1:]])
    answer = end(process)
    assert answer.code == 0, answer.err
    assert answer.out.count("The run is in") == 1  # one of them talks
    assert answer.err.count("rows read") == 1
    assert "deprecated" not in answer.err
    assert [each["step"] for each in read_metrics(tmp_path / "run") if "loss" in each] == [1, 2, 3, 4, 5, 6]
    assert command("translate", "--run", tmp_path / "run", stdin=b"a b\n").code == 0
    assert json.loads((tmp_path / "run" / "environment.json").read_text())["processors"] == os.cpu_count()
