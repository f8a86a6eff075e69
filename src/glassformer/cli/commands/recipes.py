"""The recipes that ship: `recipes`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from glassformer.cli.app import TRAIN, app


@app.command(rich_help_panel=TRAIN)
def recipes(
    name: Annotated[str | None, typer.Argument(metavar="RECIPE", help="a recipe to show", show_default=False)] = None,
    full: Annotated[bool, typer.Option("--full", metavar="", help="with every key and its meaning")] = False,
) -> None:
    """List the recipes that ship, or show one.

    - `glassformer recipes`
    - `glassformer recipes dates`
    - `glassformer recipes dates --full > my.toml`
    """
    from glassformer.recipe import bundled, find_recipe, read_recipe, to_toml
    from glassformer.recipe.reading import read_table, read_text

    if name is not None:
        path = find_recipe(name)
        shown = to_toml(read_recipe(path), comments=True) if full else read_text(path)
        sys.stdout.write(shown)
        return
    found = bundled()
    width = max(map(len, found))
    for each, path in found.items():
        sys.stdout.write(f"{each:{width}}  {read_table(path).get('title', '')}\n")
