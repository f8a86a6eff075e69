"""Training in a process of its own, so that what one training leaves in memory counts for no other.

The worker reads its recipe from standard input and writes what it has to tell to standard output, an object a line.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn

from glassformer.errors import GlassformerError, InputError, Stopped, TrainingError
from glassformer.recipe import Recipe
from glassformer.recipes import make_recipe
from glassformer.run.kinds import Corpus
from glassformer.run.training import train

OFTEN = 0.1  # seconds between two lines of the same kind
Told = Callable[[str, int, int | None], None]  # the stage, how much is done, of how much


def train_apart(recipe: Recipe, out: Path, resume: bool, told: Told) -> None:
    """Train in a new process; what stops this one stops that one, which saves its state."""
    code = f"from {__name__} import main; main({str(out)!r}, {resume})"
    search = os.pathsep.join(filter(None, sys.path))
    worker = subprocess.Popen(  # noqa: S603  # our own Python
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        start_new_session=True,  # so that of Ctrl-C it hears once, from us: a second signal would not let it save
        env=os.environ | {"PYTHONPATH": search},
    )
    assert worker.stdin is not None and worker.stdout is not None  # noqa: S101, PT018  # they are pipes
    wrong: dict[str, Any] | None = None
    try:
        with worker.stdin as there:
            there.write(recipe.model_dump_json())
        for line in worker.stdout:
            heard = json.loads(line)
            if "error" in heard:
                wrong = heard
            else:
                told(heard["stage"], heard["done"], heard["total"])
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


class Telling:
    """A listener who writes how far a training is, now and then."""

    def __init__(self) -> None:
        self._last = ("", 0.0)

    def stage(self, name: str, done: int, total: int | None) -> None:
        """Preparation has come so far."""
        if name != self._last[0] or time.monotonic() - self._last[1] > OFTEN or done == total:
            self._last = (name, time.monotonic())
            _write({"stage": name, "done": done, "total": total})

    def prepared(self, prepared: Corpus, model: nn.Module) -> None:
        """Nothing."""

    def say(self, line: str) -> None:
        """Nothing."""

    def tick(self, record: dict[str, Any]) -> None:
        """A step was taken."""
        self.stage("training", record["step"], record["steps"])

    def log(self, record: dict[str, Any]) -> None:
        """Nothing."""


def _write(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def main(out: str, resume: bool) -> None:
    """Train the recipe on standard input."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # until the training listens itself
    try:
        train(make_recipe(json.load(sys.stdin)), Path(out), resume=resume, listener=Telling())
    except Stopped as stopped:
        sys.exit(128 + stopped.signal)
    except BrokenPipeError:
        os._exit(1)  # nobody listens any more, and nothing can be flushed to them
    except GlassformerError as error:
        _write({"error": str(error), "input": isinstance(error, ValueError)})
        sys.exit(1)
