"""What ships, and what recipes train on: `recipes`, `models`, `data`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from glassformer.cli.app import TRAIN, USE, app
from glassformer.cli.options import AsJson, Changes, RecipeName, count


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


@app.command(rich_help_panel=USE)
def models(
    name: Annotated[str | None, typer.Argument(metavar="MODEL", help="a model to show", show_default=False)] = None,
) -> None:
    """List the models that ship, or show the card of one: data, recipe, scores, what it is not good for.

    - `glassformer models`
    - `glassformer models en-de`
    - `glassformer translate --run en-de "Where is the station?"`
    """
    from glassformer.errors import InputError
    from glassformer.runs.shipping import CARD, shipped

    found = shipped()
    if name is not None:
        if name not in found:
            raise InputError(f"there is no model {name!r} that ships: expected {' or '.join(found)}")
        sys.stdout.write((found[name].folder / CARD).read_text(encoding="utf-8"))
        return
    for model in found.values():
        sys.stdout.write(f"{model.name}  {model.title}  ({model.bytes / 1e6:.1f} MB)\n")


@app.command(rich_help_panel=TRAIN)
def data(
    recipe: RecipeName,
    samples: Annotated[int, count("examples to show", least=0)] = 5,
    changes: Changes = None,
    as_json: AsJson = False,
) -> None:
    """Prepare a recipe's data and describe it: counts, lengths, labels, samples, what was dropped, tokens per word.

    - `glassformer data dates`
    - `glassformer data my.toml --samples 20`
    """
    from glassformer.cli.describing import describe
    from glassformer.cli.progress import TrainingProgress
    from glassformer.recipe import base_of, find_recipe, read_recipe, with_absolute_paths
    from glassformer.runs import prepare_corpus

    path = find_recipe(recipe)
    read = with_absolute_paths(read_recipe(path, changes), base_of(path))  # as train does, so that it finds the cache
    with TrainingProgress() as progress:
        corpus = prepare_corpus(read, progress.stage)
    describe(corpus, samples, as_json)
