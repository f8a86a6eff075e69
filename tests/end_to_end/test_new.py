"""`glassformer new`: from files to a recipe that can be trained."""

import json
import tomllib
from pathlib import Path

import pytest

import captions
from glassformer.recipe import read_recipe
from suggest.test_recognising import LABELS, PAIRS, pictures, tsv, write

from .helpers import Command


def test_a_recipe_is_written_that_trains_in_the_time(command: Command, tmp_path: Path) -> None:
    data = write(tmp_path / "data" / "pairs.tsv", tsv(PAIRS * 3))
    recipe = tmp_path / "my.toml"
    said = command("new", data, "--minutes", "0.02", "--out", recipe)
    assert said.code == 0, said.err
    assert "English → German, 120 rows of pairs.tsv" in said.out
    table = tomllib.loads(recipe.read_text(encoding="utf-8"))
    assert table["source"] == {"kind": "tsv", "train": "data/pairs.tsv"}  # as seen from the recipe
    assert table["train"]["minutes"] == 0.02
    assert read_recipe(recipe).title == table["title"]
    assert command("train", recipe, "--out", tmp_path / "run").code == 0
    again = command("new", data, "--out", recipe)
    assert (again.code, again.err) == (2, f"glassformer: {recipe} is there already: name another file with --out\n")


def test_labels_and_pictures_get_recipes_too(command: Command, tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    for name, path in {
        "classification": write(tmp_path / "labels.tsv", tsv(LABELS)),
        "images": pictures(tmp_path / "pictures")[0],
        "captioning": captions.written(tmp_path / "captions", 40),
    }.items():
        said = command("new", path, "--minutes", "0.01", "--out", tmp_path / f"{name}.toml")
        assert said.code == 0, said.err
        assert read_recipe(tmp_path / f"{name}.toml").task.kind == name


def test_a_series_is_counted_in_steps_and_windows(command: Command, tmp_path: Path) -> None:
    """A table is one series: nothing is split off by chance, columns have names, and a model learns from windows."""
    hours = [f"2026-01-{1 + hour // 24:02d} {hour % 24:02d}:00,{hour % 24},{hour % 7}" for hour in range(300)]
    hours[5] = hours[5].replace(",5,", ",five,")
    data = write(tmp_path / "power.csv", "\n".join(["hour,heat,load", *hours]) + "\n")
    said = command("new", data, "--minutes", "0.01", "--out", tmp_path / "power.toml")
    assert said.code == 0, said.err
    assert "forecasting, 1 series of power.csv\n1 series read\n1 bad rows: 1 no number\n" in said.out
    assert ": 300 steps in time\n" in said.out
    windows = 210 - 96 - 24 + 1
    assert f" epochs of {windows} windows\n" in said.out
    assert "there are very few windows: a model learns from 1,000 and more" in said.err
    report = json.loads(command("data", tmp_path / "power.toml", "--json").out)["report"]
    assert (report["read"], report["bad"]) == (1, {"no number": 1})
    recipe = (tmp_path / "power.toml").read_text(encoding="utf-8")
    assert 'columns = ["heat", "load"]\n' in recipe
    assert "valid = 0.1  # series are split by time\n" in recipe
    assert "by our sweep" not in recipe


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["x.tsv", "--minutes", "0"], "--minutes is 0: it must be above 0, and at most a million"),
        (["x.tsv", "x.tsv", "x.tsv"], "3 files are named: expected one, two that are aligned, or a folder"),
        (["x.tsv", "--out", "nowhere/x.toml"], "nowhere/x.toml cannot be written: there is no folder nowhere"),
    ],
)
def test_what_cannot_be_done_gets_a_sentence(
    words: list[str], sentence: str, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "x.tsv", tsv(PAIRS))
    said = command("new", *words)
    assert (said.code, said.err) == (2, f"glassformer: {sentence}\n")


def test_a_name_that_no_recipe_can_hold_gets_a_sentence(command: Command, tmp_path: Path) -> None:
    said = command("new", f"{tmp_path}/\udcff.tsv")
    assert said.code == 2
    assert "is not UTF-8" in said.err


def test_paths_are_found_through_links(command: Command, tmp_path: Path) -> None:
    write(tmp_path / "pairs.tsv", tsv(PAIRS))
    (tmp_path / "real" / "deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real" / "deep")
    recipe = tmp_path / "link" / "my.toml"
    assert command("new", tmp_path / "pairs.tsv", "--minutes", "0.01", "--out", recipe).code == 0
    assert command("data", recipe).code == 0
