"""What is shown after training: what the run makes of test examples, scores, pictures, and what to try next."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.text import Text

from glassformer.cli.showing import bar, command_line, out, say
from glassformer.errors import InputError
from glassformer.looking.figures import attention_text, loss_figure
from glassformer.runs.metrics import read_metrics

SCORED = 1000  # test examples at most


def finish(run: Any, folder: Path) -> None:
    """Show what a run has learned."""
    loss_figure(read_metrics(folder), folder / "loss.png", run.recipe.title)
    try:
        kept = run.examples("test")
    except InputError:  # no examples were kept for a test
        say(f"\nThe run is in {folder}, the picture of its loss is {folder / 'loss.png'}.")
        return
    examples = run.drawn(kept, SCORED)
    with bar("testing", len(examples)) as progress:
        found = run.evaluate(examples, progress=progress)
    found.check(folder)
    number = f"{len(kept):,}" if len(examples) == len(kept) else f"{len(examples):,} of {len(kept):,}"
    for line in ["", *run.shown(examples, found), "", f"On {number} test examples, which it was not trained on:"]:
        say(line)
    for line in found.lines():
        say(line)
    pictures = [*run.draw(examples, found, folder), folder / "loss.png"]
    _show_attention(run, examples)
    say(f"\nThe run is in {folder}; its pictures are {' and '.join(str(path) for path in pictures)}.")
    say("Try next:")
    for command in run.next_commands(examples):
        say(f"  {command_line(command, folder)}")


def _show_attention(run: Any, examples: Sequence[Any]) -> None:
    """The cross-attention over a short example as coloured text, if there is any and the terminal is wide enough."""
    seen = run.attention_shown(examples)
    if seen is None or not len(seen.weights):
        return
    weights, which = seen.sharpest
    heat = attention_text(weights, seen.rows, seen.columns)
    if max(Text.from_markup(line).cell_len for line in heat.splitlines()) <= out.width:
        say(f"\n{which.capitalize()}: a row for each token that was written, a column for each that was read.\n")
        out.print(heat)
