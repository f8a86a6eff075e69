"""Checkpoints of other programs: `import` and `export`."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from glassformer.cli.app import USE, app
from glassformer.cli.choosing import find_run
from glassformer.cli.options import Checkpoint, Force, RunFolder, new_path
from glassformer.errors import ConfigurationError

FORMATS = ("huggingface",)
IMAGE = '"image.png"'
FIRST = {  # what to try first with a run that can do this: the first of them, as all encoders embed
    "translate": '"Hello"',
    "generate": '"Once upon a time"',
    "fill": '"The [MASK] sat on the mat."',
    "classify": '"What a film!"',
    "tag": '"they can fish"',
    "answer": '--context article.txt "Who wrote it?"',
    "embed": '"where do cats sleep?"',
    "caption": IMAGE,
}


@app.command("import", rich_help_panel=USE)
def import_(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="a folder in Hugging Face's layout, or a hub name")],
    folder: Annotated[Path, typer.Argument(metavar="DIR", parser=new_path, help="the run folder to make")],
    force: Force = False,
) -> None:
    """Make a run folder of a checkpoint that another program has trained.

    - `glassformer import Helsinki-NLP/opus-mt-en-de runs/en-de`
    - `glassformer import ../stories-15m runs/stories`
    """
    from glassformer.runs import import_run

    run = import_run(source, folder, force)
    size = sum(parameter.numel() for parameter in run.model.parameters())
    sys.stdout.write(f"{folder}: {type(run.model).__name__} with {size:,} parameters\n")
    for verb, text in FIRST.items():
        if run.can(verb):
            given = IMAGE if run.reads_images else text
            sys.stdout.write(f"next: glassformer {verb} --run {shlex.quote(str(folder))} {given}\n")
            return


@app.command(rich_help_panel=USE)
def export(
    folder: Annotated[Path, typer.Argument(metavar="OUT", parser=new_path, help="the folder to write")],
    run: RunFolder = None,
    to: Annotated[str, typer.Option(metavar="FORMAT", help=", ".join(FORMATS))] = FORMATS[0],
    checkpoint: Checkpoint = None,
    force: Force = False,
) -> None:
    """Write a run's model in the format of another program.

    - `glassformer export --run runs/stories --to huggingface stories-hf`
    """
    from glassformer.runs import export_run, load

    if to not in FORMATS:
        raise ConfigurationError(f'--to is "{to}": expected {" or ".join(FORMATS)}')
    opens = export_run(load(find_run(run, "export"), "cpu", checkpoint=checkpoint), folder, force)
    sys.stdout.write(f"{folder}: transformers opens it with {opens}\n")
