"""Metrics: each measurement of a training goes to metrics.jsonl, to log.txt, and to TensorBoard if installed.

TensorBoard also gets what the run makes of a few held-out examples at each validation.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from glassformer.errors import RunError, TrainingError
from glassformer.files import regular
from glassformer.runs.board import Board, open_board
from glassformer.tasks.run import Run
from glassformer.writing import write_text

METRICS = "metrics.jsonl"
CHECKED = 1024  # bytes before a cursor that must be as they were
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
    path = folder / METRICS
    return _records(regular(path).read_bytes()) if path.exists() else []


@dataclass(frozen=True)
class NewMetrics:
    """The measurements of a run since a cursor, the next cursor, and whether all before are to be forgotten."""

    records: list[dict[str, Any]]
    cursor: str
    anew: bool


def new_metrics(folder: Path, cursor: str = "") -> NewMetrics:
    """What a run has measured since the last time; it may be in training, and a line half written.

    A cursor is a place in the file and a checksum of what stands before it: a training that goes on from a checkpoint
    writes the file anew, and then everything is read again. Without a cursor, all is read.
    """
    path = folder / METRICS
    place, _, check = cursor.partition("-")
    begin = int(place) if place.isdecimal() else 0
    try:
        with regular(path).open("rb") as file:
            file.seek(max(0, begin - CHECKED))
            before = file.read(min(begin, CHECKED))
            anew = not begin or _checksum(before) != check
            if anew:
                file.seek(0)
                begin, before = 0, b""
            data = file.read()
    except FileNotFoundError:
        return NewMetrics([], "", anew=True)
    except OSError as error:
        raise RunError(f"{path}: cannot be read: {error.strerror}") from None
    data = data[: data.rfind(b"\n") + 1]
    return NewMetrics(_records(data), f"{begin + len(data)}-{_checksum((before + data)[-CHECKED:])}", anew)


def _checksum(data: bytes) -> str:
    return f"{zlib.crc32(data):08x}"


def _records(data: bytes) -> list[dict[str, Any]]:
    records = list[dict[str, Any]]()
    for line in data.decode("utf-8", errors="replace").split("\n"):
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
