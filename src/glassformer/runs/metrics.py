"""Metrics: each measurement of a training goes to metrics.jsonl, to log.txt, and to TensorBoard if installed."""

from __future__ import annotations

import importlib.util
import json
import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from glassformer.errors import TrainingError
from glassformer.writing import write_text

METRICS = "metrics.jsonl"
Log = Callable[[dict[str, Any]], None]
RECORD = TypeAdapter(dict[str, int | float | None])


@contextmanager
def recording(folder: Path, after: int, listener: Log) -> Iterator[Log]:
    """What to hand each measurement to. Those of steps beyond `after`, from where training goes on, are forgotten."""
    with ExitStack() as stack:
        try:
            _forget(folder, after)
            metrics = stack.enter_context((folder / METRICS).open("ab", buffering=0))  # nothing is left to write
            text = stack.enter_context((folder / "log.txt").open("ab", buffering=0))  # when they are closed
            board = _board(folder / "tensorboard", after, stack)
        except OSError as error:
            raise TrainingError(f"{folder}: cannot be written to: {error.strerror}") from None

        def log(record: dict[str, Any]) -> None:
            try:
                metrics.write((json.dumps({key: _number(value) for key, value in record.items()}) + "\n").encode())
                text.write(f"{datetime.now().astimezone().isoformat(timespec='seconds')} {_line(record)}\n".encode())
                board(record)
            except OSError as error:
                raise TrainingError(
                    f"{folder}: cannot be written to: {error.strerror}; the checkpoints are intact"
                ) from None
            listener(record)

        yield log


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


def _board(folder: Path, after: int, stack: ExitStack) -> Log:
    """Writes to TensorBoard; nowhere if that is not installed."""
    if importlib.util.find_spec("tensorboard") is None:
        return lambda record: None
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(folder), purge_step=after + 1)

    def close() -> None:
        with suppress(OSError):  # of a full disk, which was told of when it was found
            writer.close()

    stack.callback(close)

    def log(record: dict[str, Any]) -> None:
        for name, value in record.items():
            if name != "step":
                writer.add_scalar(name.replace("valid_", "valid/"), value, record["step"])

    return log


def _number(value: Any) -> Any:
    """A value as JSON has it: it knows no infinity, and nothing that is no number."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _line(record: dict[str, Any]) -> str:
    return "  ".join(f"{key} {value:.6g}" for key, value in record.items())
