"""A part of the drill, small enough for every day; `make drill` runs the whole."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from random import Random

import pytest

from drill.engine import Broken, Outcome, judge
from drill.schemas import drawn, toml
from glassformer.parts.linear import kernels

CASES = 180


@pytest.mark.drill
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the drill forks processes")
def test_a_part_of_the_drill_breaks_nothing(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "drill", "--cases", str(CASES), "--jobs", "1", "--report", str(report), "--quiet"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)  # noqa: S603
    assert report.exists(), done.stderr
    facts = json.loads(report.read_text(encoding="utf-8"))
    assert facts["findings"] == [], done.stdout
    assert facts["kernels"] == kernels()  # those in C are attacked, too
    assert facts["cases"] >= CASES * 0.9
    assert facts["kills"] >= CASES // 10


def outcome(code: int, err: str = "") -> Outcome:
    return Outcome(("train", "x"), code, "", err, 1.0, 1 << 20)


@pytest.mark.parametrize(
    ("code", "err"),
    [(0, ""), (0, "2 rows read\n"), (2, "glassformer: x.toml: cannot be read\n"), (1, "glassformer: no disk left\n")],
)
def test_how_a_command_may_end(code: int, err: str) -> None:
    judge(outcome(code, err))


@pytest.mark.parametrize(
    ("code", "err"),
    [
        (1, "Traceback (most recent call last):\nValueError: x\n"),
        (0, "x/site-packages/y.py:1: UserWarning: z\n"),
        (2, ""),
        (2, "x.toml: cannot be read\n"),
        (3, "glassformer: a sentence: with words\n"),
        (143, ""),
        (-9, ""),
        (-11, ""),
        (1, "glassformer: there is not enough memory: lower x\n"),
    ],
)
def test_how_it_may_not(code: int, err: str) -> None:
    with pytest.raises(Broken):
        judge(outcome(code, err))


def test_recipes_are_written_as_toml() -> None:
    train = {"lr": 1e-3, "x y": [1, [True, {}]], "big": 10**23}
    written = toml({"title": 'a"\n\x7fé', "train": {**train, "nothing": None}})
    assert tomllib.loads(written) == {"title": 'a"\n\x7fé', "train": train}


def test_values_are_drawn_from_schemas() -> None:
    rng = Random(0)
    schema = {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]}
    assert {type(drawn(schema, rng)) for _ in range(300)} >= {int, type(None), str, list}
