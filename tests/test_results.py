"""The documents of results say what the records say, and no figure of theirs is typed by hand."""

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_the_documents_are_what_the_records_say() -> None:
    command = [sys.executable, str(ROOT / "benchmarks/results.py"), "write", "--check"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    assert found.returncode == 0, found.stderr


def test_an_ensemble_shows_each_training_and_the_evaluation_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    commands = import_module("results").commands
    assert commands({"recipe": "g2p", "seed": 0}, " --set x=1") == ["`glassformer train g2p --set x=1`"]
    assert commands({"recipe": "g2p", "seed": "0, 2", "seeds": [0, 2]}, " --set x=1") == [
        "    glassformer train g2p --set x=1 --set train.seed=0 --out runs/g2p-0",
        "    glassformer train g2p --set x=1 --set train.seed=2 --out runs/g2p-2",
        "    glassformer evaluate --run runs/g2p-0 --run runs/g2p-2",
    ]


def test_records_name_a_recipe_that_ships_and_no_place_of_a_machine() -> None:
    paths = sorted((ROOT / "benchmarks/results").glob("*-*[0-9].json"))
    assert paths
    for path in paths:
        text = path.read_text(encoding="utf-8")
        assert (ROOT / f"src/glassformer/recipe/shipped/{json.loads(text)['recipe']}.toml").is_file()
        assert str(ROOT) not in text
        assert not any(str(value).startswith("/") for value in json.loads(text)["changed"].values())
