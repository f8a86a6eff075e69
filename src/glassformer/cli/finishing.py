"""What is shown after training: what the run makes of test examples, scores, pictures, the report, what to try next."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.text import Text

from glassformer.cli.items import notice
from glassformer.cli.showing import bar, command_line, out, say
from glassformer.errors import InputError
from glassformer.looking.figures import attention_text, loss_figure
from glassformer.looking.sharpest import sharpest
from glassformer.looking.style import save
from glassformer.runs.metrics import read_metrics
from glassformer.runs.report import REPORT, Report, try_on

VERBS = ("translate", "generate", "classify", "tag", "answer", "fill", "forecast")  # what runs do with texts


def finish(run: Any, folder: Path) -> None:
    """Show what a run has learned."""
    save(loss_figure(read_metrics(folder), run.recipe.title, run.task.loss_unit), folder / "loss.png")
    try:
        tested = try_on(run.examples("test"), run, bar)
    except InputError as error:  # no examples were kept for a test, or none that can be scored
        _write(report_of(run, folder, missing=str(error)))
        say(f"\nIt is not tested: {error}\nThe run is in {folder}, the picture of its loss is {folder / 'loss.png'}.")
        return
    examples, found = tested.examples, tested.found
    for line in ["", *run.shown(examples, found), "", tested.sentence, *found.lines()]:
        say(line)
    pictures = [*run.draw(examples, found, folder), folder / "loss.png"]
    _show_attention(run, examples)
    say(f"\nThe run is in {folder}; its pictures are {' and '.join(str(path) for path in pictures)}.")
    report = report_of(run, folder, tested)
    if _write(report):
        say(f"All of this is in {folder / REPORT}.")
    say("Try next:")
    for command in report.commands:
        say(f"  {command}")


def report_of(run: Any, folder: Path, tested: Any = None, missing: str = "") -> Report:
    """The report of a run, with the commands to use it."""
    known = [f"{verb} --run RUN TEXT" for verb in VERBS if run.can(verb)]
    commands = run.next_commands(tested.examples) if tested is not None else known
    typed = [command_line(command, folder) for command in commands]
    return Report(folder, run.recipe, run, tested, missing, typed)


def _write(report: Report) -> bool:
    """Write a report into the run's folder, if that is possible: the training has ended well in any case."""
    try:
        report.write(report.folder / REPORT)
    except OSError as error:
        notice(f"{report.folder / REPORT} cannot be written: {error.strerror or error}")
        return False
    return True


def _show_attention(run: Any, examples: Sequence[Any]) -> None:
    """The cross-attention over a short example as coloured text, if there is any and the terminal is wide enough."""
    seen = run.attention_shown(examples)
    if seen is None or not seen.kinds:
        return
    best = sharpest(seen)
    heat = attention_text(best.weights, best.rows, best.columns)
    if max(Text.from_markup(line).cell_len for line in heat.splitlines()) <= out.width:
        say(f"\n{best.title.capitalize()}: a row for each token that was written, a column for each that was read.\n")
        out.print(heat)
