"""Progress: a live bar for people at a terminal, a few plain lines otherwise; always on stderr."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from glassformer.data import Prepared
from glassformer.models import EncoderDecoder

console = Console(stderr=True, highlight=False)


class TrainingProgress:
    """Listens to a training and shows it."""

    def __init__(self) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, TextColumn("{task.fields[note]}"), console=console)
        self._task: TaskID | None = None
        self._stage = ""
        self._note = ""

    def __enter__(self) -> TrainingProgress:
        if console.is_terminal:
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._bar.stop()

    def stage(self, name: str, done: int, total: int | None) -> None:
        """A stage of preparation."""
        if name != self._stage:
            self._begin(name, total)
        self._update(done, total)

    def prepared(self, prepared: Prepared, model: EncoderDecoder) -> None:
        """The data is ready, the model is built."""
        parameters = sum(parameter.numel() for parameter in model.parameters())
        for line in prepared.report.lines():
            console.print(line, markup=False)
        source, target = prepared.source_tokenizer, prepared.target_tokenizer
        sizes = f"{source.size:,}" if source is target else f"{source.size:,} and {target.size:,}"
        console.print(f"{sizes} tokens in the vocabulary; {parameters:,} parameters in the model")

    def tick(self, record: dict[str, Any]) -> None:
        """A step."""
        if self._stage != "training":
            self._begin("training", record["steps"])
        self._update(record["step"], record["steps"])

    def log(self, record: dict[str, Any]) -> None:
        """A measurement."""
        if "valid_loss" in record:
            scores = "  ".join(
                f"{name} {record[f'valid_{name}']:.4g}" for name in ("loss", "perplexity", "bleu", "chrf", "exact")
            )
            console.print(f"step {record['step']:,}: validation  {scores}")
        else:
            self._note = (
                f"epoch {record['epoch'] + 1}  loss {record['loss']:.3f}  lr {record['lr']:.2g}  "
                f"{record['tokens_per_s']:,.0f} tokens/s  padding {record['padding']:.1%}  "
                f"{record['eta']:.0f} s to go" + (f"  skipped {record['skipped']}" if record["skipped"] else "")
            )
            if not console.is_terminal and record["step"] % 100 == 0:
                console.print(f"step {record['step']:,}: {self._note}")

    def _begin(self, stage: str, total: int | None) -> None:
        if self._task is not None:
            self._bar.remove_task(self._task)
        self._stage, self._note = stage, ""
        self._task = self._bar.add_task(stage, total=total, note="")

    def _update(self, done: int, total: int | None) -> None:
        if self._task is not None and console.is_terminal:
            self._bar.update(self._task, completed=done, total=total, note=self._note)
