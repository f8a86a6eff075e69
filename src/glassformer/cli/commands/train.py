"""From a recipe to a run: `train`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from glassformer.cli.app import TRAIN, app
from glassformer.cli.options import Changes, RecipeName, out


@app.command(rich_help_panel=TRAIN)
def train(
    recipe: RecipeName,
    folder: Annotated[Path | None, out("the run folder; runs/NAME if not given")] = None,
    resume: Annotated[bool, typer.Option("--resume", metavar="", help="continue from the last checkpoint")] = False,
    changes: Changes = None,
) -> None:
    """Train a model as a recipe says.

    - `glassformer train dates`
    - `glassformer train my.toml --out runs/first --set train.steps=2000`
    - `glassformer train my.toml --out runs/first --resume`
    - `torchrun --nproc-per-node 2 -m glassformer train my.toml`
    """
    from glassformer import runs
    from glassformer.cli.finishing import finish
    from glassformer.cli.progress import TrainingProgress
    from glassformer.recipe import base_of, find_recipe, read_recipe

    path = find_recipe(recipe)
    home = Path("runs") / path.stem if folder is None else folder
    read = read_recipe(path, changes)
    if os.environ.get("RANK", "0") != "0":  # of torchrun's processes only the first prints
        runs.train(read, home, base=base_of(path), resume=resume)
        return
    with TrainingProgress() as progress:
        run = runs.train(read, home, base=base_of(path), resume=resume, listener=progress)
    finish(run, home)
