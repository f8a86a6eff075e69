"""Two runs on one text: `diff`."""

from __future__ import annotations

import csv
import io
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glassformer.cli.app import STUDY, app
from glassformer.cli.options import Device, check_new_file, out, path_of

if TYPE_CHECKING:
    from glassformer.looking.comparing import Comparison

ENDINGS = (".png", ".svg", ".pdf", ".html", ".csv")


@app.command(rich_help_panel=STUDY)
def diff(
    first: Annotated[Path, typer.Argument(metavar="RUN_A", parser=path_of, help="a run folder, or a model that ships")],
    second: Annotated[Path, typer.Argument(metavar="RUN_B", parser=path_of, help="another")],
    text: Annotated[str, typer.Argument(metavar="TEXT", help="a text; or the name of an image file")],
    checkpoints: Annotated[
        tuple[str, str] | None,
        typer.Option("--checkpoints", metavar="STEP STEP", help="a checkpoint of each run: a step, best or last"),
    ] = None,
    file: Annotated[
        Path | None, out("a file to write: .png, .svg, .pdf, .html, .csv; none: the terminal", metavar="FILE")
    ] = None,
    device: Device = "auto",
) -> None:
    """Compare two runs on one text: tokens, outputs, scores, the first layer that differs, head by head.

    - `glassformer diff runs/first runs/second "Where is the station?"`
    - `glassformer diff runs/mine runs/mine "Where is the station?" --checkpoints 500 best`
    - `glassformer diff runs/first runs/second "Where is the station?" --out difference.html`
    """
    from glassformer.looking.comparing import compare
    from glassformer.looking.exporting import check_ending
    from glassformer.runs import load

    if file is not None:
        check_new_file(file, "difference.html")
        check_ending(file, ENDINGS)
    steps = checkpoints or (None, None)
    one, two = (load(folder, device, checkpoint=step) for folder, step in zip((first, second), steps, strict=True))
    found = compare(one, two, text)
    names = [f"{folder}{f' at {step}' if step else ''}" for folder, step in zip((first, second), steps, strict=True)]
    if file is None:
        _say(found, names)
    else:
        _write(found, names, file)


def _say(found: Comparison, names: list[str]) -> None:
    from glassformer.cli.showing import say
    from glassformer.looking.plots.choosing import visible

    for line in _lines(found, names):
        say(visible(line))


def _lines(found: Comparison, names: list[str]) -> list[str]:
    """The comparison for people."""
    lines = [found.text, f"  A {names[0]}: {found.outputs[0]}", f"  B {names[1]}: {found.outputs[1]}", ""]
    same = found.tokens[0] == found.tokens[1]
    lines += [f"tokens{' of both' if same else ' of A'}: {' '.join(found.tokens[0])}"]
    lines += [] if same else [f"tokens of B: {' '.join(found.tokens[1])}"]
    lines += ["", f"{'log-probability':24}{'in A':>10}{'in B':>10}"] if found.scores else []
    lines += [f"  {score.what:22}{_shown(score.first):>10}{_shown(score.second):>10}" for score in found.scores]
    if found.streams:
        first = found.diverges
        lines += ["", f"first difference: {first.point}" if first else "the streams do not differ"]
        width = max(len(each.point) for each in found.streams)
        lines += [f"  {each.point:{width}}  {each.difference:8.4f}  {_bar(each.difference)}" for each in found.streams]
    for kind in dict.fromkeys(pair.kind for pair in found.heads):
        lines += ["", f"{kind}: distance of each head to the same one of B (0: the same, 1: nothing alike)"]
        lines += _head_lines([pair for pair in found.heads if pair.kind == kind])
    return [*lines, *([""] if found.notes else []), *(f"note: {note}" for note in found.notes)]


def _head_lines(pairs: list[Any]) -> list[str]:
    """A line for each layer: its heads, and the nearest heads where those are others."""
    lines = []
    for layer in dict.fromkeys(pair.layer for pair in pairs):
        mine = [pair for pair in pairs if pair.layer == layer]
        lines.append(f"  layer {layer}  " + "  ".join(f"{_shown(pair.distance):>5}" for pair in mine))
        moved = [pair for pair in mine if pair.nearest != (pair.layer, pair.head)]
        told = [f"head {pair.head}: nearest is layer {pair.nearest[0]} head {pair.nearest[1]}" for pair in moved]
        lines += [f"           {'; '.join(told)}"] if told else []
    return lines


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _bar(value: float) -> str:
    return "█" * round(20 * min(value, 1.0))


def _write(found: Comparison, names: list[str], file: Path) -> None:
    from glassformer.cli.showing import say
    from glassformer.looking import page as pages
    from glassformer.looking.style import save_and_tell
    from glassformer.writing import write_text

    if file.suffix.lower() == ".csv":
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(found.rows())
        write_text(file, text.getvalue())
    elif file.suffix.lower() == ".html":
        lines = f"<pre>{escape(chr(10).join(_lines(found, names)))}</pre>"
        drawn = [pages.svg(found.figure(), "difference", "streams and heads")] if found.streams or found.heads else []
        write_text(file, pages.page(f"{names[0]} and {names[1]}", [*drawn, lines]))
    else:
        save_and_tell(found.figure(), file)
    say(f"{file} is written.")
