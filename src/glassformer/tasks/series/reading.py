"""What all runs of series read: files of numbers, series, or rows of numbers; and how their steps are named.

B windows, T steps, C columns
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from glassformer.data.examples import Series
from glassformer.data.report import Report
from glassformer.data.sources.series import CsvSource, read_pieces
from glassformer.errors import DataError, InputError
from glassformer.looking.patching import Forced
from glassformer.looking.trace import Description
from glassformer.tasks.run import Run
from glassformer.tasks.series.windows import Frame, Values, standard, table


class SeriesRun(Run):
    """What the runs that read series have in common."""

    reads_files: ClassVar[bool] = True

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of all columns in training."""
        return tuple(self.recipe.source.columns)

    @property
    def frame(self) -> Frame:
        """What of a window is read, and what is predicted."""
        frame: Frame = self.task.frame(self.columns)
        return frame

    @property
    def read_columns(self) -> list[str]:
        """The names of the columns that are read."""
        return [self.columns[at] for at in self.frame.read]

    # --- what is given

    def series_in(self, path: str | Path) -> list[Series]:
        """The last window of each series in a CSV file with the columns of training."""
        keys: dict[str, Any] = {"kind": "csv", "train": str(path), "columns": self.read_columns}
        source, report, name = self.recipe.source, Report(strict=False), str(path)
        keys |= {key: getattr(source, key) for key in ("time", "series", "max_gap") if getattr(source, key, None)}
        if not name.strip():
            raise InputError("the line is empty: expected the name of a CSV file")
        try:
            if not hasattr(source, "time"):  # of simulated series: the file says itself which column its times are in
                keys |= {key: each for key, each in (CsvSource.recognised([Path(name)]) or {}).items() if key == "time"}
            found = [pieces[-1][0] for pieces in read_pieces(Path(name), name, CsvSource(**keys), report)]
        except DataError as error:
            raise InputError(str(error)) from None
        if report.examples:
            raise InputError(report.examples[0])
        if not found:
            raise InputError(f"{name}: holds no row")
        return [self.last(each) for each in found if isinstance(each, Series)]

    def last(self, given: Any) -> Series:
        """The last window of a series, or of rows of numbers (T, C)."""
        series = given if isinstance(given, Series) else self._of_rows(given)
        window = self.task.window
        if len(series.values) < window:
            steps = "1 step" if len(series.values) == 1 else f"{len(series.values):,} steps"
            raise InputError(f"{series.name} has {steps}: this run reads {window:,}")
        last = series.part(len(series.values) - window, len(series.values))
        if np.isnan(self.history([last])).all():
            raise InputError(f"{series.name}: none of the last {window:,} steps has a value")
        return last

    def _of_rows(self, rows: Any) -> Series:
        try:
            values = np.array(rows, np.float64)
        except (TypeError, ValueError):
            raise InputError("a series is a table of numbers: a row for each step") from None
        values = values[:, None] if values.ndim == 1 else values
        if values.ndim != 2 or values.shape[1] != len(self.read_columns):
            wanted = ", ".join(self.read_columns)
            raise InputError(f"a series has {len(self.read_columns)} columns ({wanted}), not {values.shape[1:]}")
        if np.isinf(values).any():
            raise InputError("a series holds an infinite number: a missing value is NaN or None")
        cells = tuple(tuple(None if np.isnan(each) else each for each in row) for row in values.tolist())
        return Series("the series", tuple(self.read_columns), cells)

    def given(self, items: Sequence[Any]) -> list[Series]:
        """The last windows of items: files, each with one series or more, series, or rows of numbers."""
        found = []
        for item in items:
            found += self.series_in(item) if isinstance(item, str | Path) else [self.last(item)]
        return found

    def item(self, text: str) -> Series:
        """The first series in a file."""
        return self.series_in(text)[0]

    @property
    def fields(self) -> tuple[str, ...]:
        return ("series",)

    def from_page(self, text: str) -> Series:
        """The last window of numbers: a line for each step, with commas or spaces between columns; ? is missing."""
        lines = [re.split(r"\s*,\s*|\s+", line.strip()) for line in text.splitlines() if line.strip()]
        if len({*map(len, lines)}) > 1:
            raise InputError("a series has a line for each step, all with as many numbers")
        try:
            rows = [[None if cell in ("", "?") else float(cell) for cell in line] for line in lines]
        except ValueError:
            raise InputError("a series has a line for each step, and numbers only") from None
        return self.last(rows)

    def suggestion(self, example: Any) -> str:
        """What is read of a window, a line for each step."""
        rows = self.history([example])[0].tolist()
        return "\n".join(", ".join("?" if np.isnan(each) else f"{each:.6g}" for each in row) for row in rows)

    # --- what the model takes

    def history(self, windows: Sequence[Series]) -> Values:
        """What is read of windows, (B, T, C)."""
        names, found = self.read_columns, []
        for window in windows:
            if missing := [name for name in names if name not in window.columns]:
                raise InputError(f"{window.name} has no column {missing[0]!r}: it has {', '.join(window.columns)}")
            places = [window.columns.index(name) for name in names]
            found.append(table(window)[: self.task.window, places])
        return np.stack(found)

    def standard(self, history: Values) -> tuple[Values, Values]:
        """The level and the spread of windows (B, T, C) that the run takes out before a model reads: (B, 1, C)."""
        if self.task.normalise == "window":
            return standard(history)
        return np.zeros((1, 1, 1)), np.ones((1, 1, 1))

    @torch.inference_mode()
    def answers(self, history: Values) -> Tensor:
        """What the model makes of what is read (B, T, C), some at a time."""
        level, spread = self.standard(history)
        values = torch.from_numpy(((history - level) / spread).astype(np.float32))
        size = max(1, self.recipe.train.batch_tokens // self.task.window)
        return torch.cat([self.model(some.to(self.device)).float().cpu() for some in torch.split(values, size)])

    # --- looking inside

    def forced(self, text: Any, written: Sequence[int] | None = None) -> Forced:
        """What the model takes to read a window; its steps are named by how far back they are, and their values."""
        window = text if isinstance(text, Series) else self.given([text])[0]
        history = self.history([window])
        level, spread = self.standard(history)
        values = torch.from_numpy(((history - level) / spread).astype(np.float32)).to(self.device)
        stack = "decoder" if hasattr(self.model, "decoder") else "encoder"
        return Forced((values,), {stack: [step_names(history[0])]}, {})

    def description(self, text: Any, tokens: Mapping[str, Any], words: Mapping[str, Any]) -> Description:
        window = text if isinstance(text, Series) else self.given([text])[0]
        kind = "decoder.self" if hasattr(self.model, "decoder") else "encoder.self"
        return Description(window.name, self.output_of(window), kind, {**tokens, "label": [self.answer_names]}, words)

    @property
    def answer_names(self) -> list[str]:
        """What the numbers are that the model answers with."""
        return list(self.labels)


def step_names(history: Values) -> list[str]:
    """A name for each step of a window (T, C): how many steps it is before the end, and its values."""
    last = len(history)
    shown = ["/".join("?" if np.isnan(each) else f"{each:.3g}" for each in row) for row in history]
    return [f"t-{last - at - 1} {values}" if at < last - 1 else f"t {values}" for at, values in enumerate(shown)]


def times_after(series: Series, steps: int, ahead: int) -> list[str]:
    """The times of a forecast, if those of the series are equally far apart; else the numbers of its steps."""
    numbers = [ahead + step for step in range(steps)]
    times = series.times
    apart = {round(b - a, 6) for a, b in pairwise(times)}
    if len(apart) != 1:
        return [f"+{number}" for number in numbers]
    (step,) = apart
    return [time_text(times[-1] + number * step, series.dated) for number in numbers]


def time_text(time: float, dated: bool) -> str:
    """A time as people write it."""
    if not dated:
        return f"{time:g}"
    try:
        return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M:%S").removesuffix(":00")
    except (ValueError, OverflowError, OSError):
        return f"{time:g}"
