"""Telling: each measurement of a training goes to metrics.jsonl, to log.txt, to TensorBoard if installed, and on."""

from __future__ import annotations

import importlib.util
import json
import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from glassformer.errors import TrainingError
from glassformer.run.folder import METRICS, write_text

Tell = Callable[[dict[str, Any]], None]


@contextmanager
def telling(folder: Path, after: int, listener: Tell) -> Iterator[Tell]:
    """What to hand each measurement to. Those of steps beyond `after`, from where training goes on, are forgotten."""
    with ExitStack() as stack:
        try:
            _forget(folder / METRICS, after)
            metrics = stack.enter_context((folder / METRICS).open("a", encoding="utf-8"))
            log = stack.enter_context((folder / "log.txt").open("a", encoding="utf-8"))
        except OSError as error:
            raise TrainingError(f"{folder}: cannot be written to: {error.strerror}") from None
        board = _board(folder / "tensorboard", after, stack)

        def tell(record: dict[str, Any]) -> None:
            try:
                metrics.write(json.dumps({key: _number(value) for key, value in record.items()}) + "\n")
                metrics.flush()
                log.write(f"{datetime.now().astimezone().isoformat(timespec='seconds')} {_line(record)}\n")
                log.flush()
            except OSError as error:
                raise TrainingError(
                    f"{folder}: cannot be written to: {error.strerror}; the checkpoints are intact"
                ) from None
            board(record)
            listener(record)

        yield tell


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """All measurements of a run, in their order."""
    path = folder / METRICS
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def _forget(path: Path, after: int) -> None:
    """Drop the measurements that will be made again, and a line that was cut off."""
    if not path.exists():
        return
    kept = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if record["step"] <= after:
            kept.append(line + "\n")
    write_text(path, "".join(kept))


def _board(folder: Path, after: int, stack: ExitStack) -> Tell:
    """Writes to TensorBoard; nowhere if that is not installed."""
    if importlib.util.find_spec("tensorboard") is None:
        return lambda record: None
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(folder), purge_step=after + 1)
    stack.callback(writer.close)

    def tell(record: dict[str, Any]) -> None:
        for name, value in record.items():
            if name != "step":
                writer.add_scalar(name.replace("valid_", "valid/"), value, record["step"])

    return tell


def _number(value: Any) -> Any:
    """A value as JSON has it: it knows no infinity, and nothing that is no number."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _line(record: dict[str, Any]) -> str:
    return "  ".join(f"{key} {value:.6g}" for key, value in record.items())
