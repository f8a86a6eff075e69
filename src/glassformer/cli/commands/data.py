"""What a recipe trains on: `data`."""

from __future__ import annotations

from typing import Annotated

from glassformer.cli.app import TRAIN, app
from glassformer.cli.options import AsJson, Changes, RecipeName, count


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
    from glassformer.recipe import anchored, base_of, find_recipe, read_recipe
    from glassformer.runs import prepare_corpus

    path = find_recipe(recipe)
    read = anchored(read_recipe(path, changes), base_of(path))  # as train does, which then finds it in the cache
    with TrainingProgress() as progress:
        corpus = prepare_corpus(read, progress.stage)
    describe(corpus, samples, as_json)
