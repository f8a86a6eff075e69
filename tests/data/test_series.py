"""Series in CSV files: columns, missing values, gaps in time; and simulated ones."""

from pathlib import Path
from typing import Any

import pytest

from glassformer.data.examples import Series
from glassformer.data.report import Report
from glassformer.data.sources.series import CsvSource
from glassformer.data.sources.simulated import ACTIVITIES, ActivitiesSource, SeasonsSource
from glassformer.errors import DataError
from waves import written


def read(file: Path, report: Report | None = None, **keys: Any) -> list[Series]:
    source = CsvSource.model_validate({"kind": "csv", "train": str(file), **keys})
    return [series for series, _ in source.read("train", file.parent, report or Report())]  # type: ignore[misc]


def test_columns_are_found_by_their_names(tmp_path: Path) -> None:
    file = written(tmp_path / "t.csv", ("b", "a"), [(1, 2.5), ("", "NaN"), (3, 4)])
    (one,) = read(file, columns=["a", "b"])
    assert one.values == ((2.5, 1.0), (None, None), (4.0, 3.0))
    assert one.name == "t"


def test_semicolons_and_decimal_commas(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("zeit;wert\n1;2,5\n2;3,5\n")
    (one,) = read(tmp_path / "t.csv", columns=["wert"], time="zeit")
    assert one.values == ((2.5,), (3.5,))


def test_a_column_that_is_not_there_is_named_with_the_nearest(tmp_path: Path) -> None:
    file = written(tmp_path / "t.csv", ("load",), [(1,)])
    with pytest.raises(DataError, match="has no column 'laod': did you mean 'load'"):
        read(file, columns=["laod"])


def test_a_file_that_is_no_table_is_refused_in_printable_words(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"\x01\x02," + b"y" * 500 + b"\n1,2\n")
    with pytest.raises(DataError, match="it has ") as caught:
        read(tmp_path / "t.csv", columns=["load"])
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 300 + len(str(tmp_path))


def test_gaps_in_time_are_filled_and_long_ones_cut(tmp_path: Path) -> None:
    hours = [0, 1, 2, 5, 6, 7, 20, 21]
    file = written(tmp_path / "t.csv", ("when", "x"), [(f"2026-01-01 {hour:02}:00", hour) for hour in hours])
    first, second = read(file, columns=["x"], time="when", max_gap=5)
    assert [value for (value,) in first.values] == [0, 1, 2, None, None, 5, 6, 7]
    assert [(b - a) / 3600 for a, b in zip(first.times, first.times[1:], strict=False)] == [1.0] * 7
    assert [value for (value,) in second.values] == [20, 21]
    assert first.dated
    assert (first.name, second.name) == ("t (1)", "t (2)")


def test_months_are_steps_though_they_differ(tmp_path: Path) -> None:
    rows = [(f"{2020 + month // 12}-{month % 12 + 1:02}-01", month) for month in range(60)]
    (one,) = read(written(tmp_path / "t.csv", ("month", "x"), rows), columns=["x"], time="month")
    assert [value for (value,) in one.values] == list(range(60))


def test_bad_cells_are_counted_and_missing(tmp_path: Path) -> None:
    file = written(tmp_path / "t.csv", ("t", "x"), [(0, 1), (1, "one"), (1, 5), ("then", 6), (2, "inf"), (3, 4)])
    report = Report()
    (one,) = read(file, report, columns=["x"], time="t")
    assert [value for (value,) in one.values] == [1, None, None, 4]
    assert report.bad == {"no number": 2, "times out of order": 1, "no time": 1}
    with pytest.raises(DataError, match="x is 'one', which is no number"):
        read(file, Report(strict=True), columns=["x"], time="t")


def test_a_series_of_bad_rows_alone_is_none(tmp_path: Path) -> None:
    rows = [("a", "then", 1), ("a", "now", 2), ("b", 0, 3), ("b", 1, 4)]
    report = Report()
    file = written(tmp_path / "t.csv", ("who", "t", "x"), rows)
    (one,) = read(file, report, columns=["x"], time="t", series="who")
    assert (one.name, one.values) == ("b", ((3.0,), (4.0,)))
    assert report.bad == {"no time": 2}
    assert read(written(tmp_path / "u.csv", ("who", "t", "x"), rows[:2]), columns=["x"], time="t") == []


def test_a_row_that_is_no_table_is_a_bad_row(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x\n1\n" + "9" * 200_000 + "\n2\n")
    report = Report()
    (one,) = read(tmp_path / "t.csv", report, columns=["x"])
    assert one.values == ((1.0,), (2.0,))
    assert report.bad == {"no table": 1}


def test_several_series_and_labels(tmp_path: Path) -> None:
    rows = [("a", 1, "up"), ("b", 5, ""), ("a", 2, "down")]
    first, second = read(
        written(tmp_path / "t.csv", ("who", "x", "what"), rows), columns=["x"], series="who", label="what"
    )
    assert (first.name, first.values, first.labels) == ("a", ((1.0,), (2.0,)), ("up", "down"))
    assert (second.name, second.labels) == ("b", (None,))


def test_a_table_of_numbers_is_recognised(tmp_path: Path) -> None:
    rows = [(f"2026-01-{day:02}", day, 2 * day, "on" if day % 2 else "off") for day in range(1, 10)]
    file = written(tmp_path / "t.csv", ("day", "x", "y", "state"), rows)
    assert CsvSource.recognised([file]) == {"train": str(file), "columns": ["x", "y"], "time": "day", "label": "state"}
    words = written(tmp_path / "w.csv", ("a", "b"), [("one", "two"), ("three", "four"), ("five", "six")])
    assert CsvSource.recognised([words]) is None


def test_seasons_are_the_same_for_the_same_seed() -> None:
    def drawn(**keys: Any) -> list[Series]:
        source = SeasonsSource.model_validate({"kind": "seasons", "count": 2, "length": 60, **keys})
        return [series for series, _ in source.read("train", Path(), Report())]  # type: ignore[misc]

    assert drawn() == drawn()
    assert drawn() != drawn(seed=1)
    holes = [value for series in drawn(missing=0.5) for (value,) in series.values]
    assert 30 < holes.count(None) < 90


def test_people_are_in_one_split_and_do_everything() -> None:
    source = ActivitiesSource.model_validate({"kind": "activities", "count": 3, "seconds": 2})
    splits = {split: list(source.read(split, Path(), Report())) for split in ("train", "valid", "test")}
    assert [len(each) for each in splits.values()] == [3, 8, 8]
    values = {series.values for each in splits.values() for series, _ in each}  # type: ignore[attr-defined]
    assert len(values) == 19
    assert {*splits["train"][0][0].labels} == {*ACTIVITIES}  # type: ignore[attr-defined]
