"""From files to a recipe: `new`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from glassformer.cli.app import TRAIN, app
from glassformer.cli.options import check_new_file, new_path, out

FEW = 1_000  # examples


@app.command(rich_help_panel=TRAIN)
def new(
    paths: Annotated[
        list[Path], typer.Argument(metavar="FILE [FILE]", parser=new_path, help="a file, two aligned files or a folder")
    ],
    task: Annotated[str | None, typer.Option(metavar="TASK", help="what is learned; guessed if not given")] = None,
    minutes: Annotated[float, typer.Option(metavar="M", help="how long the training may take")] = 20.0,
    target: Annotated[Path | None, out("the recipe to write; NAME.toml if not given", metavar="FILE")] = None,
) -> None:
    """Look at your data and at this machine, and write a recipe that suits both.

    - `glassformer new pairs.tsv`
    - `glassformer new train.en train.de --minutes 60 --out my.toml`
    - `glassformer new reviews/ --task classification`
    """
    from glassformer.cli.items import notice
    from glassformer.cli.progress import TrainingProgress
    from glassformer.cli.showing import say
    from glassformer.data.source import unpacked
    from glassformer.errors import InputError, Stopped
    from glassformer.suggest import recognise, suggest
    from glassformer.writing import write_text

    if not 0 < minutes <= 10**6:
        raise InputError(f"--minutes is {minutes:g}: it must be above 0, and at most a million")
    if len(paths) > 2:
        raise InputError(f"{len(paths)} files are named: expected one, two that are aligned, or a folder")
    file = Path(f"{unpacked(paths[0]).stem}.toml") if target is None else target
    if file.exists():
        raise InputError(f"{file} is there already: name another file with --out")
    check_new_file(file, "my.toml")
    if not os.access(file.absolute().parent, os.W_OK):
        raise InputError(f"{file} cannot be written: you have no permission to write there")
    found = recognise(paths, task)
    with TrainingProgress() as progress:
        try:
            suggested = suggest(found, minutes, progress.stage)
        except Stopped as stopped:  # its trainings are only to measure the speed: there is nothing to resume
            raise typer.Exit(128 + stopped.signal) from None
    write_text(file, suggested.to_toml(file.absolute().parent))
    say(suggested.title)
    for line in (*suggested.corpus.report.lines(), *suggested.expected()):
        say(line)
    if suggested.examples < FEW:
        notice(f"there are very few {suggested.corpus.recipe.task.learned_from}: a model learns from {FEW:,} and more")
    say(f"{file} is written; now: glassformer train {file}")
