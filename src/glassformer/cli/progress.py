"""Progress of a training: a live bar in a terminal, a few plain lines elsewhere; always on stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from datetime import timedelta
from time import monotonic
from types import TracebackType
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text
from torch import nn

from glassformer.data import Corpus
from glassformer.runs import Listener
from glassformer.stopping import at_the_end
from glassformer.training.tuning import summary

PLAIN_EVERY = 100  # steps between two lines where there is no terminal
QUIET = 30  # seconds without a line there, after which there is one
FIRST = 3  # steps before the first line there


class Bar(Progress):
    """A bar with a line of numbers under it."""

    note = ""

    def get_renderables(self) -> Iterable[RenderableType]:
        """What rich draws."""
        yield self.make_tasks_table(self.tasks)
        if self.note:
            yield Text(self.note, style="dim", no_wrap=True, overflow="ellipsis")


class TrainingProgress(Listener):
    """Shows how a training goes; `clock` tells the seconds."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._console = Console(stderr=True, highlight=False)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bar = Bar(*columns, console=self._console)
        self._task: TaskID | None = None
        self._stage = ""
        self._steps: int | None = 0  # in all; None: training is still measuring how many fit into its time
        self._last_step = 0  # of which a plain line was written
        self._last_line = self._clock()
        self._restored = ExitStack()  # what the terminal gets back, also if a signal ends the process

    def __enter__(self) -> TrainingProgress:
        if self._console.is_terminal:
            self._bar.start()
            self._restored.enter_context(at_the_end(self._show_cursor))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._console.is_terminal:  # elsewhere it would print an empty line
            self._bar.stop()
        self._restored.close()

    def _show_cursor(self) -> None:
        self._console.show_cursor(True)

    def stage(self, name: str, done: int, total: int | None) -> None:
        """Show how far a stage is."""
        if name != self._stage:
            if self._task is not None:
                self._bar.remove_task(self._task)
            self._stage, self._task = name, self._bar.add_task(name, total=total)
        if self._task is not None and self._console.is_terminal:
            self._bar.update(self._task, completed=done, total=total)
        elif self._clock() - self._last_line > QUIET:
            self.say(f"{name}: {done:,}" + ("" if total is None else f" of {total:,}"))

    def prepared(self, corpus: Corpus, model: nn.Module) -> None:
        """Show what there is to learn from, and the size of the model."""
        sizes = summary(model)
        for line in corpus.report.lines():
            self.say(line)
        vocabularies = " and ".join(f"{each.size:,}" for each in dict.fromkeys(corpus.assets.tokenizers))
        words = f"{vocabularies} tokens in the vocabulary; " if vocabularies else ""
        labels = f"{len(corpus.assets.labels):,} labels; " if corpus.assets.labels else ""
        self.say(f"{words}{labels}{sizes.total:,} parameters in the model")
        if sizes.trained < sizes.total:
            self.say(f"{sizes.trained:,} of them are trained: {sizes}")

    def tick(self, record: dict[str, Any]) -> None:
        """Show a step, and how training goes if the step tells it."""
        if record["steps"] is not None and self._steps is None:
            self.say(f"{record['steps']:,} steps will fit into {record['minutes']:g} minutes")
        self._steps = record["steps"]
        if "loss" in record:
            self._bar.note = _note(record)
            quiet = self._clock() - self._last_line > QUIET
            if quiet or (self._last_step == 0 and record["step"] >= FIRST):
                self._plain_line(record)
        if self._console.is_terminal or "loss" in record:
            self.stage("training", record["step"], record["steps"])

    def log(self, record: dict[str, Any]) -> None:
        """Show a measurement."""
        if "valid_loss" in record:
            values = {name.removeprefix("valid_"): value for name, value in record.items() if name.startswith("valid_")}
            scores = "  ".join(f"{name} {value:.4g}" for name, value in values.items())
            self.say(f"step {record['step']:,}: validation  {scores}")
            return
        self._bar.note = _note(record)
        if record["step"] - self._last_step >= PLAIN_EVERY:
            self._plain_line(record)

    def _plain_line(self, record: dict[str, Any]) -> None:
        """A line of numbers that stays, where there is no terminal to show them in."""
        if not self._console.is_terminal:
            self._last_step = record["step"]
            self.say(f"step {record['step']:,}: {_note(record)}")

    def say(self, line: str) -> None:
        """Print a line that stays."""
        self._last_line = self._clock()
        self._console.print(line, markup=False, soft_wrap=True)


def _note(record: dict[str, Any]) -> str:
    """A measurement in a line."""
    return (
        f"epoch {record['epoch'] + 1}  loss {record['loss']:.3f}  lr {record['lr']:.2g}  "
        f"{record['tokens_per_s']:,.0f} tokens/s  padding {record['padding']:.1%}  "
        f"{timedelta(seconds=round(record['eta']))} to go"
        + (f"  skipped {record['skipped']}" if record["skipped"] else "")
    )
