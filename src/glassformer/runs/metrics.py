"""Metrics: each measurement of a training goes to metrics.jsonl, to log.txt, and to TensorBoard if installed.

TensorBoard also gets what the run makes of a few held-out examples at each validation.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from glassformer.errors import TrainingError
from glassformer.runs.board import Board, open_board
from glassformer.tasks.run import Run
from glassformer.writing import write_text

METRICS = "metrics.jsonl"
Log = Callable[[dict[str, Any]], None]
RECORD = TypeAdapter(dict[str, int | float | None])


class Recorder:
    """Takes the measurements of a training: call it with each. `board` is TensorBoard, if that is installed."""

    def __init__(self, log: Log, board: Board | None) -> None:
        self._log, self._board = log, board

    def begin(self, run: Run, examples: Sequence[Any]) -> None:
        """A training begins, or goes on; a few of these held-out examples will be looked at."""
        if self._board is not None:
            self._board.begin(run, examples)

    def look(self, run: Run) -> None:
        """A validation takes place, by a run with the weights of now: its measurement comes next."""
        if self._board is not None:
            self._board.look(run)

    def __call__(self, record: dict[str, Any]) -> None:
        self._log(record)


@contextmanager
def recording(folder: Path, after: int, listener: Log) -> Iterator[Recorder]:
    """What to hand each measurement to. Those of steps beyond `after`, from where training goes on, are forgotten."""
    with ExitStack() as stack:
        try:
            _forget(folder, after)
            metrics = stack.enter_context((folder / METRICS).open("ab", buffering=0))  # nothing is left to write
            text = stack.enter_context((folder / "log.txt").open("ab", buffering=0))  # when they are closed
            board = open_board(folder / "tensorboard", after, stack)
        except OSError as error:
            raise TrainingError(f"{folder}: cannot be written to: {error.strerror}") from None

        def log(record: dict[str, Any]) -> None:
            try:
                metrics.write((json.dumps({key: _number(value) for key, value in record.items()}) + "\n").encode())
                text.write(f"{datetime.now().astimezone().isoformat(timespec='seconds')} {_line(record)}\n".encode())
                if board is not None:
                    board.add(record)
            except OSError as error:
                raise TrainingError(
                    f"{folder}: cannot be written to: {error.strerror}; the checkpoints are intact"
                ) from None
            listener(record)

        yield Recorder(log, board)


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """All measurements of a run, in their order, but for lines that were cut off or damaged."""
    path, records = folder / METRICS, list[dict[str, Any]]()
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n") if path.exists() else []:
        with suppress(ValidationError):
            records.append({"step": 0, **RECORD.validate_json(line, strict=True)})
    return records


def _forget(folder: Path, after: int) -> None:
    """Drop the measurements that will be made again, and a line that was cut off."""
    if (folder / METRICS).exists():
        kept = [record for record in read_metrics(folder) if record["step"] <= after]
        write_text(folder / METRICS, "".join(json.dumps(record) + "\n" for record in kept))


def _number(value: Any) -> Any:
    """A value as JSON has it: it knows no infinity, and nothing that is no number."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _line(record: dict[str, Any]) -> str:
    return "  ".join(f"{key} {value:.6g}" for key, value in record.items())
