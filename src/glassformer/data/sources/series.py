"""Series in tables: a CSV file whose rows are steps in time and whose columns are numbers.

What is missing stays missing: an empty cell is None, and so is what cannot be read, which is counted as a bad row. With
a `time` column, steps that are left out become rows of None, and a longer gap than `max_gap` begins a new series.

T steps, C columns
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from statistics import median
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from glassformer.data.examples import BadRow, Series
from glassformer.data.report import Report
from glassformer.data.source import FileSource, Found, Split
from glassformer.data.textfiles import first_lines, texts
from glassformer.errors import DataError
from glassformer.recipe.values import Place

MISSING = {"", "na", "n/a", "nan", "null", "none", "-", "?"}  # cells without a number, whatever their capitals
LARGEST = 1e30  # numbers beyond it have no place in float32
MOST_STEPS = 10_000_000  # of a file: a series is held in memory
DELIMITERS = (",", ";", "\t")
LONGEST_NAME = 40  # characters of a column's name in a message
LOOKED_AT = 200  # rows, to see which columns are numbers
FEW_LABELS = 20  # different values of a column, at most, if they are labels


def _different(names: tuple[str, ...]) -> tuple[str, ...]:
    if repeated := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"source.columns names {repeated[0]!r} twice")
    return names


class CsvSource(FileSource):
    """A table of numbers over time: the first line names the columns, each other line is a step."""

    gives = Series
    unit = "series"
    endings = (".csv",)
    kind: Literal["csv"]
    columns: Annotated[tuple[str, ...], Field(min_length=1, max_length=1_000), AfterValidator(_different)] = Field(
        description="the names of the columns that hold numbers"
    )
    time: str | None = Field(
        None, description="the column of times, ISO 8601 or numbers: gaps in it are filled with missing values"
    )
    series: str | None = Field(None, description="the column that says which series a row is of; missing: there is one")
    label: str | None = Field(None, description="the column of labels, for tasks that predict them")
    max_gap: Annotated[Place, Field(le=100_000)] = Field(
        24, description="the longest gap in time, in steps; after a longer one a new series begins"
    )

    @classmethod
    def recognised(cls, paths: Sequence[Path]) -> dict[str, Any] | None:
        """A table whose columns are mostly numbers; one may be of times, and one of labels."""
        found = super().recognised(paths)
        lines = [] if found is None else first_lines(paths[0], LOOKED_AT + 1)
        if found is None or len(lines) < 3:
            return None
        delimiter = delimiter_of(lines[0])
        try:
            names, *rows = ([cell.strip() for cell in _cells(line, delimiter)] for line in lines)
        except BadRow:
            return None
        cells = {name: [row[at] for row in rows if at < len(row)] for at, name in enumerate(names)}
        times = [name for name, some in cells.items() if some and all(_is_date(cell) for cell in some)]
        numbers = [name for name, some in cells.items() if name not in times and some and _are_numbers(some, delimiter)]
        words = [name for name in names if name not in (*times, *numbers) and len({*cells[name]}) <= FEW_LABELS]
        keys = {"time": times[0]} if times else {}
        return found | {"columns": numbers} | keys | ({"label": words[0]} if words else {}) if numbers else None

    def read(self, split: Split, base: Path, report: Report) -> Iterator[Found]:
        """Each series of the file of a split."""
        name: str = getattr(self, split)
        yield from read_series(base / name, name, self, report)

    def columns_read(self) -> int:
        """How many numbers a step has."""
        return len(self.columns)


@dataclass
class _Rows:
    """The rows of one series as they are read: where each stands, its numbers, its time and its label."""

    lines: list[int] = field(default_factory=list)
    values: list[tuple[float | None, ...]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    labels: list[str | None] = field(default_factory=list)

    def with_gaps(self, max_gap: int) -> Iterator[_Rows]:
        """The same at equal steps, the median of those in the file: in pieces, where a gap is too long to fill."""
        step = median(b - a for a, b in zip(self.times, self.times[1:], strict=False)) if len(self.times) > 1 else 1.0
        piece, empty = _Rows(), (None,) * len(self.values[0])
        for row, now in enumerate(self.times):
            steps = (now - piece.times[-1]) / step if piece.times else 1.0
            if steps >= max_gap + 1.5:
                yield piece
                piece, steps = _Rows(), 1.0
            missing = round(steps) - 1
            before = piece.times[-1] if piece.times else now
            for number in range(1, missing + 1):
                piece.add(self.lines[row], empty, before + (now - before) * number / (missing + 1), None)
            piece.add(self.lines[row], self.values[row], now, self.labels[row] if self.labels else None)
        yield piece

    def add(self, line: int, values: tuple[float | None, ...], time: float, label: str | None) -> None:
        """One more row."""
        if len(self.lines) == MOST_STEPS:
            raise DataError(f"a series has more than {MOST_STEPS:,} steps: cut it into several")
        self.lines.append(line)
        self.values.append(values)
        self.times.append(time)
        self.labels.append(label)


def read_series(path: Path, name: str, source: Any, report: Report) -> Iterator[Found]:
    """The series of a CSV file, by the keys of a source: columns, time, series, label, max_gap."""
    for pieces in read_pieces(path, name, source, report):
        yield from pieces


def read_pieces(path: Path, name: str, source: Any, report: Report) -> Iterator[list[Found]]:
    """The same, with the pieces of each series, between gaps in time, together."""
    wanted = [*source.columns, *(each for each in (source.time, source.series, source.label) if each is not None)]
    found, dated, places, delimiter = dict[str, _Rows](), False, dict[str, int](), ","
    for count, (place, line) in enumerate(texts(path, name, report)):
        if count > MOST_STEPS:
            raise DataError(f"{name}: has more than {MOST_STEPS:,} rows: cut it into several files")
        if not places:
            delimiter = delimiter_of(line)
            try:
                places = _places(_cells(line, delimiter), wanted, name)
            except BadRow as bad:
                raise DataError(f"{place}: {bad}") from None
            continue
        if not line.strip():
            continue
        try:
            row = _cells(line, delimiter)
            which = _cell(row, places, source.series) if source.series is not None else Path(name).stem
            if not which:
                raise BadRow("no series", f"{source.series} is empty")
            before = found[which].times if which in found else []
            time, is_date = _time(_cell(row, places, source.time)) if source.time is not None else (0.0, False)
            if source.time is not None and before and time <= before[-1]:
                raise BadRow("times out of order", f"{source.time} does not come after that of the row before")
        except BadRow as bad:
            report.add_bad(bad.kind, place, str(bad))
            continue
        dated = dated or is_date
        values = tuple(_number_or_bad(row, places, column, delimiter, place, report) for column in source.columns)
        label = None if source.label is None else _cell(row, places, source.label) or None
        found.setdefault(which, _Rows()).add(int(place.rpartition(":")[2]), values, time, label)
    if not places:
        wrong = report.examples[-1] if report.examples else f"{name}: is empty"
        raise DataError(f"{wrong}: expected a first line that names the columns")
    report.note(f"{name}: {sum(len(rows.lines) for rows in found.values()):,} steps in time")
    for which, rows in found.items():
        pieces = list(rows.with_gaps(source.max_gap)) if source.time is not None else [rows]
        several: list[Found] = []
        for number, piece in enumerate(pieces, start=1):
            title = which if len(pieces) == 1 else f"{which} ({number})"
            times = tuple(piece.times) if source.time is not None else ()
            labels = tuple(piece.labels) if source.label is not None else ()
            series = Series(title, source.columns, tuple(piece.values), times, labels, dated)
            several.append((series, f"{name}:{piece.lines[0]}"))
        yield several


def delimiter_of(line: str) -> str:
    """What stands between the columns: the likeliest of comma, semicolon and tab."""
    return max(DELIMITERS, key=line.count)


def _cells(line: str, delimiter: str) -> list[str]:
    """The cells of a line."""
    try:
        return next(csv.reader([line], delimiter=delimiter))
    except csv.Error as error:
        raise BadRow("no table", f"the row cannot be cut into columns: {error}") from None


def _places(header: list[str], wanted: Sequence[str], name: str) -> dict[str, int]:
    """Where each column that is wanted stands."""
    names = [cell.strip() for cell in header]
    for column in wanted:
        if column not in names:
            near = get_close_matches(column, names, n=1)
            known = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(map(_shown, names[:10]))}"
            raise DataError(f"{name}: has no column {column!r}: {known}")
    return {column: names.index(column) for column in wanted}


def _shown(name: str) -> str:
    """The name of a column as a message shows it: of a file that is no table it may be anything."""
    name = name if name.isprintable() else ascii(name)
    return name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}…"


def _cell(row: list[str], places: dict[str, int], column: str) -> str:
    if places[column] >= len(row):
        raise BadRow("wrong column count", f"{len(row)} columns: {column} is missing")
    return row[places[column]].strip()


def _number_or_bad(
    row: list[str], places: dict[str, int], column: str, delimiter: str, place: str, report: Report
) -> float | None:
    """The number in a cell; None where there is none, and a bad row in the report if something else stands there."""
    try:
        return number_of(_cell(row, places, column), column, delimiter)
    except BadRow as bad:
        report.add_bad(bad.kind, place, str(bad))
        return None


def number_of(cell: str, column: str, delimiter: str = ",") -> float | None:
    """The number in a cell, None if it is missing; with semicolons between cells a comma may stand for the point."""
    if cell.lower() in MISSING:
        return None
    try:
        number = float(cell.replace(",", ".") if delimiter == ";" else cell)
    except ValueError:
        raise BadRow("no number", f"{column} is {cell[:40]!r}, which is no number") from None
    if not math.isfinite(number) or abs(number) > LARGEST:
        raise BadRow("no number", f"{column} is {cell[:40]}: a number between ±{LARGEST:g} is expected")
    return number


def _time(cell: str) -> tuple[float, bool]:
    """A time as a number, and whether it is a date."""
    try:
        number = float(cell)
    except ValueError:
        pass
    else:
        if math.isfinite(number):
            return number, False
    try:
        when = datetime.fromisoformat(cell)
        return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp(), True
    except (ValueError, OverflowError):
        raise BadRow("no time", f"the time is {cell[:40]!r}: expected ISO 8601, such as 2026-05-31 14:00") from None


def _is_date(cell: str) -> bool:
    try:
        return _time(cell)[1]
    except BadRow:
        return False


def _are_numbers(cells: Sequence[str], delimiter: str) -> bool:
    try:
        return any(number_of(cell, "", delimiter) is not None for cell in cells)
    except BadRow:
        return False
