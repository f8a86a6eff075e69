"""Progress: a live bar for people at a terminal, a few plain lines otherwise; always on stderr."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from types import TracebackType
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text
from torch import nn

from glassformer.run.kinds import Corpus
from glassformer.training.tuning import summary

PLAIN_EVERY = 100  # steps between lines where there is no terminal


class Bar(Progress):
    """A bar with a line of numbers under it."""

    note = ""

    def get_renderables(self) -> Iterable[RenderableType]:
        """What is shown: rich asks."""
        yield self.make_tasks_table(self.tasks)
        if self.note:
            yield Text(self.note, style="dim", no_wrap=True, overflow="ellipsis")


class TrainingProgress:
    """Listens to a training and shows it."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bar = Bar(*columns, console=self._console)
        self._task: TaskID | None = None
        self._stage = ""
        self._told = 0  # the last step of which a plain line was written

    def __enter__(self) -> TrainingProgress:
        if self._console.is_terminal:
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._console.is_terminal:  # it would end with an empty line
            self._bar.stop()

    def stage(self, name: str, done: int, total: int | None) -> None:
        """A stage of preparation."""
        if name != self._stage:
            if self._task is not None:
                self._bar.remove_task(self._task)
            self._stage, self._task = name, self._bar.add_task(name, total=total)
        if self._task is not None and self._console.is_terminal:
            self._bar.update(self._task, completed=done, total=total)

    def prepared(self, prepared: Corpus, model: nn.Module) -> None:
        """The data is ready, the model is built."""
        learning = summary(model)
        for line in prepared.report.lines():
            self.say(line)
        sizes = {id(tokenizer): f"{tokenizer.size:,}" for tokenizer in prepared.tokenizers}.values()
        words = f"{' and '.join(sizes)} tokens in the vocabulary; " if sizes else ""
        labels = f"{len(prepared.labels):,} labels; " if prepared.labels else ""
        self.say(f"{words}{labels}{learning.total:,} parameters in the model")
        if learning.trained < learning.total:
            self.say(f"{learning.trained:,} of them learn: {learning}")

    def tick(self, record: dict[str, Any]) -> None:
        """A step."""
        self.stage("training", record["step"], record["steps"])

    def log(self, record: dict[str, Any]) -> None:
        """A measurement."""
        if "valid_loss" in record:
            values = {name.removeprefix("valid_"): value for name, value in record.items() if name.startswith("valid_")}
            scores = "  ".join(f"{name} {value:.4g}" for name, value in values.items())
            self.say(f"step {record['step']:,}: validation  {scores}")
            return
        self._bar.note = (
            f"epoch {record['epoch'] + 1}  loss {record['loss']:.3f}  lr {record['lr']:.2g}  "
            f"{record['tokens_per_s']:,.0f} tokens/s  padding {record['padding']:.1%}  "
            f"{timedelta(seconds=round(record['eta']))} to go"
            + (f"  skipped {record['skipped']}" if record["skipped"] else "")
        )
        if not self._console.is_terminal and record["step"] - self._told >= PLAIN_EVERY:
            self._told = record["step"]
            self.say(f"step {record['step']:,}: {self._bar.note}")

    def say(self, line: str) -> None:
        """A line that stays."""
        self._console.print(line, markup=False, soft_wrap=True)
