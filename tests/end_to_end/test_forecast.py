"""Forecasts by command: files in, numbers, tables and pictures out, and what is wrong with them."""

import csv
from pathlib import Path

import pytest

import glassformer as gf
from glassformer.recipe import read_recipe
from waves import forecasting, waves, written

from .helpers import Command, complains, envelopes


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("forecast")
    gf.train(forecasting(folder, task={"criterion": "quantile", "predict": ["load"]}), folder / "run")
    return folder / "run"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return written(
        tmp_path / "new.csv", ("hour", "heat", "load"), [(at, each, 2 * each) for at, each in enumerate(waves(20))]
    )


def test_a_line_for_each_step(run: Path, data: Path, command: Command) -> None:
    said = command("forecast", "--run", run, data)
    assert (said.code, said.err) == (0, "")
    rows = [line.split("\t") for line in said.out.splitlines()]
    assert [row[0] for row in rows] == ["20", "21", "22", "23"]
    assert all(float(low) <= float(middle) == float(value) <= float(high) for _, value, low, middle, high in rows)


def test_objects_tables_and_pictures(run: Path, data: Path, command: Command, tmp_path: Path) -> None:
    table, picture = tmp_path / "next.csv", tmp_path / "next.png"
    first, second = envelopes(command("forecast", "--run", run, data, tmp_path / "none.csv", "--json", "--out", table))
    (found,) = first["forecasts"]
    assert (found["columns"], len(found["values"]), found["quantiles"].keys()) == (["load"], 4, {"0.1", "0.5", "0.9"})
    assert first["output"] == found["values"]
    assert "none.csv" in second["error"]
    with table.open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["series", "time", "load", "load 0.1", "load 0.5", "load 0.9"]
    assert len(rows) == 5
    assert command("forecast", "--run", run, data, "--out", picture).code == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_series_whose_names_end_alike_are_all_forecast(command: Command, tmp_path: Path) -> None:
    rows = [(site, at, each) for site in ("House (1)", "House (2)") for at, each in enumerate(waves(80))]
    data = written(tmp_path / "houses.csv", ("site", "hour", "heat"), rows)
    source = {"train": str(data), "columns": ["heat"], "time": "hour", "series": "site"}
    gf.train(forecasting(tmp_path, source=source), tmp_path / "run")
    said = command("forecast", "--run", tmp_path / "run", data)
    assert (said.code, said.err) == (0, "")
    assert [line.split("\t")[0] for line in said.out.splitlines()] == ["House (1)"] * 4 + ["House (2)"] * 4


def test_after_a_gap_in_time_the_last_piece_is_continued(run: Path, command: Command, tmp_path: Path) -> None:
    rows = [(at + 1000 * (at >= 40), each, 2 * each) for at, each in enumerate(waves(60))]
    data = written(tmp_path / "gap.csv", ("hour", "heat", "load"), rows)
    said = command("forecast", "--run", run, data)
    assert (said.code, said.err) == (0, "")
    assert [line.split("\t")[0] for line in said.out.splitlines()] == ["1060", "1061", "1062", "1063"]


def test_the_help_names_what_is_given(command: Command) -> None:
    assert "[CSV]..." in command("forecast", "--help").out
    assert "[IMAGE]..." in command("caption", "--help").out


def test_what_is_wrong_is_said_in_a_sentence(run: Path, data: Path, command: Command, tmp_path: Path) -> None:
    short = written(tmp_path / "short.csv", ("hour", "heat", "load"), [(0, 1, 2)])
    other = written(tmp_path / "other.csv", ("hour", "heta", "load"), [(0, 1, 2)] * 20)
    bad = written(tmp_path / "bad.csv", ("hour", "heat", "load"), [(at, "x", 2) for at in range(20)])
    complains(command("forecast", "--run", run, short), 2, "short has 1 step: this run reads 16")
    complains(command("forecast", "--run", run, other), 2, "has no column 'heat': did you mean 'heta'?")
    complains(command("forecast", "--run", run, bad), 2, "bad.csv:2: heat is 'x', which is no number")
    complains(
        command("forecast", "--run", run, data, "--out", tmp_path / "next.txt"), 2, "expected a file that ends in"
    )
    complains(command("translate", "--run", run, "hello"), 2, "does not translate")


def test_it_is_evaluated_and_looked_at(run: Path, data: Path, command: Command, tmp_path: Path) -> None:
    longer = written(
        tmp_path / "long.csv", ("hour", "heat", "load"), [(at, x, 2 * x) for at, x in enumerate(waves(60))]
    )
    said = command("evaluate", "--run", run, "--data", longer)
    assert said.code == 0, said.err
    assert said.out.startswith("11 windows, 4 steps after each:\n  MAE")
    assert "seasonal naive" in said.out
    said = command("look", "--run", run, data, "--what", "heads", "--out", tmp_path / "heads.png")
    assert said.code == 0, said.err


def test_new_recognises_a_table_of_numbers(command: Command, tmp_path: Path) -> None:
    rows = [(f"2026-01-{1 + at // 24:02} {at % 24:02}:00", each) for at, each in enumerate(waves(240))]
    data = written(tmp_path / "heat.csv", ("when", "heat"), rows)
    said = command("new", data, "--minutes", "0.05", "--out", tmp_path / "heat.toml")
    assert said.code == 0, said.err
    recipe = read_recipe(tmp_path / "heat.toml")
    assert recipe.task.kind == "forecasting"
    assert (recipe.source.columns, recipe.source.time) == (("heat",), "when")
