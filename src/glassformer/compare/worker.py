"""Training in a process of its own, so that the memory of one training does not count for another.

The worker reads its recipe as TOML from standard input and writes its progress to standard output, an object per line.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from glassformer.errors import GlassformerError, InputError, Stopped, TrainingError
from glassformer.recipe import Recipe, make_recipe, to_toml
from glassformer.runs.training import Listener, train
from glassformer.stopping import stoppable

OFTEN = 0.1  # seconds between two lines of the same kind
Tell = Callable[[str, int, int | None], None]  # the stage, how much is done, of how much


def train_in_process(recipe: Recipe, out: Path, resume: bool, tell: Tell) -> None:
    """Train in a new process; what stops this one stops that one, which saves its state."""
    code = f"from {__name__} import main; main({str(out)!r}, {resume})"
    search = os.pathsep.join(filter(None, sys.path))
    worker = subprocess.Popen(  # noqa: S603  # our own Python
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        start_new_session=True,  # so that it gets Ctrl-C once, from us: a second signal would not let it save
        env=os.environ | {"PYTHONPATH": search},
    )
    assert worker.stdin is not None and worker.stdout is not None  # noqa: S101, PT018  # they are pipes
    wrong: dict[str, Any] | None = None
    try:
        with worker.stdin as pipe:
            pipe.write(to_toml(recipe))
        for line in worker.stdout:
            received = json.loads(line)
            if "error" in received:
                wrong = received
            else:
                tell(received["stage"], received["done"], received["total"])
        ended = worker.wait()
    finally:
        if worker.poll() is None:
            worker.send_signal(signal.SIGTERM)
            worker.wait()
        worker.stdout.close()
    if wrong is not None:
        raise (InputError if wrong["input"] else TrainingError)(wrong["error"])
    if ended:
        raise TrainingError(f"the training of {out} ended with code {ended}")


class Reporter(Listener):
    """Writes how far a training is, now and then."""

    def __init__(self) -> None:
        self._last = ("", 0.0)

    def stage(self, name: str, done: int, total: int | None) -> None:
        """Preparation has come so far."""
        if name != self._last[0] or time.monotonic() - self._last[1] > OFTEN or done == total:
            self._last = (name, time.monotonic())
            _write({"stage": name, "done": done, "total": total})

    def tick(self, record: dict[str, Any]) -> None:
        """A step was taken."""
        self.stage("training", record["step"], record["steps"])


def _write(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def main(out: str, resume: bool) -> None:
    """Train the recipe on standard input."""
    try:
        with stoppable():
            train(make_recipe(tomllib.loads(sys.stdin.read())), Path(out), resume=resume, listener=Reporter())
    except Stopped as stopped:
        sys.exit(128 + stopped.signal)
    except BrokenPipeError:
        os._exit(1)  # the reader is gone, and nothing can be flushed
    except GlassformerError as error:
        _write({"error": str(error), "input": isinstance(error, ValueError)})
        sys.exit(1)
