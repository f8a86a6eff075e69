"""The list of runs: whatever state they are in, one that is damaged included."""

import json
import os
import shutil
from pathlib import Path

import pytest

from glassformer.cli import main
from glassformer.cli.commands.runs import runs
from glassformer.errors import InputError
from glassformer.runs import train
from glassformer.runs.folder import reserved
from glassformer.tasks.translation import Translator
from tiny import IDLE, recipe


def test_runs_are_listed_newest_first_with_their_state(
    tmp_path: Path, trained: Translator, capsys: pytest.CaptureFixture[str]
) -> None:
    made = train(recipe(IDLE), tmp_path / "finished")
    names = ("sizes/training", "killed", "cut", "empty", "no-recipe")  # one of them lies deeper
    for name in names:
        shutil.copytree(tmp_path / "finished", tmp_path / name)
    for name in ("sizes/training", "killed"):
        (tmp_path / name / "model.safetensors").unlink()
    weights = tmp_path / "cut" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-8])
    (tmp_path / "empty" / "config.json").write_text("")
    (tmp_path / "no-recipe" / "recipe.toml").unlink()
    (tmp_path / "no-run").mkdir()
    with (tmp_path / "killed" / "metrics.jsonl").open("a") as metrics:
        metrics.write('{"step": 5, "valid_')  # a line that was cut off
    os.utime(tmp_path / "killed" / "metrics.jsonl", (4e9, 4e9))
    with reserved(tmp_path / "sizes" / "training"):
        runs(tmp_path, as_json=True)
    found = {Path(each["path"]).name: each for each in json.loads(capsys.readouterr().out)}
    assert next(iter(found)) == "killed"
    assert {name: each["state"] for name, each in found.items()} == {
        "finished": "finished",
        "training": "training",
        "killed": "unfinished",
        "cut": "damaged",
        "empty": "damaged",
        "no-recipe": "damaged",
    }
    parameters = sum(each.numel() for each in made.model.parameters())
    for name in ("finished", "killed", "training"):
        run = found[name]
        assert (run["task"], run["family"], run["parameters"]) == ("translation", "transformer", parameters)
        assert (run["step"], run["steps"], run["watch"]) == (4, 4, "loss")
        assert 0 < run["best"] < 10


def test_a_table_has_a_line_for_each_run(trained: Translator, capsys: pytest.CaptureFixture[str]) -> None:
    assert trained.path is not None
    runs(trained.path.parent)
    head, row = capsys.readouterr().out.splitlines()
    assert head.split() == ["run", "task", "model", "parameters", "step", "best", "state"]
    assert row.split()[1:3] == ["translation", "transformer"]
    assert " 220 of 220 " in row
    assert row.endswith("finished")


def test_the_folder_that_train_writes_to_is_listed_unless_another_is_named(
    tmp_path: Path, trained: Translator, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert trained.path is not None
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "mine").symlink_to(trained.path)
    monkeypatch.chdir(tmp_path)
    for arguments in (["runs"], ["runs", "runs"], ["runs", "runs/mine"]):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 0
        assert capsys.readouterr().out.splitlines()[1].startswith("runs/mine  translation")


def test_a_folder_without_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs(tmp_path, as_json=True)
    assert capsys.readouterr().out == "[]\n"
    with pytest.raises(InputError, match="there is no run in"):
        runs(tmp_path)
    with pytest.raises(InputError, match="there is no such folder"):
        runs(tmp_path / "nowhere")
