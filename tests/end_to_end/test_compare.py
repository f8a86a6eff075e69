"""Comparing by command: a report, a stop and a new start, and what is wrong."""

import json
import signal
import time
from pathlib import Path

import pytest

from glassformer.runs import train
from tiny import IDLE, recipe

from .helpers import Command, complains, end, start, write


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    small = write(tmp_path / "small.toml", recipe(IDLE))
    return small, write(tmp_path / "large.toml", recipe(IDLE, {"model": {"width": 32}}))


def test_a_comparison_that_is_stopped_saves_and_ends_with_its_training(two: tuple[Path, Path], tmp_path: Path) -> None:
    often, run = ("--set", "train.save_every=20"), tmp_path / "out" / "runs" / "small-seed0"
    process = start("compare", *two, "--out", tmp_path / "out", *often, "--tokens", "2000000000")
    until = time.monotonic() + 100
    while not any((run / "checkpoints").glob("*")):
        assert time.monotonic() < until
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    stopped = end(process)
    assert stopped.code == 143
    assert "Traceback" not in stopped.err
    assert "run 1 of 2, small, seed 0\n" in stopped.err
    assert not (run / ".lock").exists()
    assert not (run / "model.safetensors").exists()


def test_a_report_is_shown_and_written(command: Command, tmp_path: Path) -> None:
    for name, width in (("small", 16), ("large", 32)):
        train(recipe(IDLE, {"model": {"width": width}}), tmp_path / name)
    asked = ("compare", tmp_path / "small", tmp_path / "large", "--out", tmp_path / "out", "--split", "valid")
    answer = command(*asked)
    assert answer.code == 0, answer.err
    assert answer.err == "scoring 1 of 2: small, seed 0\nscoring 2 of 2: large, seed 0\n"
    assert [line.split()[0] for line in answer.out.splitlines()[:3]] == ["run", "small", "large"]
    assert f"The report is {tmp_path / 'out' / 'report.html'}" in answer.out
    assert (tmp_path / "out" / "figure.png").is_file()
    again = command(*asked, "--json")
    assert again.err == ""  # nothing is scored twice
    assert [run["name"] for run in json.loads(again.out)["runs"]] == ["small", "large"]


def test_what_is_wrong_is_a_sentence(two: tuple[Path, Path], command: Command, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "out")
    complains(command("compare", two[0], *out), 2, "needs two recipes or runs")
    complains(command("compare", *two, "--seeds", "0,x", *out), 2, '--seeds is "0,x": expected whole numbers')
    complains(command("compare", *two, "--split", "train", *out), 2, '--split is "train": expected valid or test')
    complains(command("compare", two[0], "datse", *out), 2, "datse", "did you mean dates?")
    other = write(tmp_path / "other.toml", recipe(IDLE, {"source": {"count": 201}}))
    complains(command("compare", two[0], other, *out), 2, "small and other have different data: source.count")
    assert not (tmp_path / "out").exists()
