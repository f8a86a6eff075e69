"""Several recipes or runs side by side: `compare`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glassformer.cli.app import STUDY, app
from glassformer.cli.options import MOST_SEED, AsJson, Changes, Device, count, out
from glassformer.errors import ConfigurationError

if TYPE_CHECKING:
    from glassformer.compare import Comparison

HOME = Path("runs") / "comparison"
MOST_TOKENS = 10**15 - 1  # as of train.tokens


@app.command(rich_help_panel=STUDY)
def compare(
    names: Annotated[
        list[str], typer.Argument(metavar="RECIPE|RUN", help="recipes to train, by file or name, or finished runs")
    ],
    folder: Annotated[Path | None, out("the folder of runs and report; runs/comparison if not given")] = None,
    tokens: Annotated[
        int | None,
        count(
            "tokens that each recipe is trained on: both sides of its examples, without padding; as many as the steps "
            "of the first recipe take if not given",
            most=MOST_TOKENS,
        ),
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(metavar="N,N,…", help="train.seed of the runs of each recipe; 0 if not given")
    ] = None,
    examples: Annotated[int, count("held-out examples that are scored at most", least=2)] = 1000,
    split: Annotated[str, typer.Option(metavar="NAME", help="valid or test")] = "test",
    changes: Changes = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Train several recipes on the same data, tokens and seeds, or take finished runs, and compare them in a report.

    It writes report.html, figure.png and comparison.json. After a stop, the same command continues where it ended.

    - `glassformer compare small.toml large.toml --out runs/sizes`
    - `glassformer compare small.toml large.toml --tokens 2000000 --seeds 0,1,2`
    - `glassformer compare runs/first runs/second --json`
    """
    from glassformer.cli.progress import TrainingProgress
    from glassformer.compare import compare as run_comparison
    from glassformer.compare import entries_of, write_report
    from glassformer.writing import make_folder

    if split not in ("valid", "test"):
        raise ConfigurationError(f'--split is "{split}": expected valid or test')
    chosen = _seeds("0" if seeds is None else seeds)
    entries = entries_of(names, changes)
    for option, given in (("--set", changes), ("--tokens", tokens), ("--seeds", seeds)):
        if given is not None and all(entry.run for entry in entries):
            raise ConfigurationError(f"{option} is for recipes that are trained: finished runs stay as they are")
    home = HOME if folder is None else folder
    make_folder(home)
    with TrainingProgress() as progress:
        result = run_comparison(entries, home, chosen, tokens, examples, split, _shown(progress), device=device)
    write_report(result, home)
    if as_json:
        sys.stdout.write(json.dumps(asdict(result), ensure_ascii=False) + "\n")
        return
    _show(result, home)


def _shown(progress: Any) -> Callable[[str, int, int | None], None]:
    """Shows each stage as a bar, and each run that begins as a line that stays."""
    begun = set[str]()

    def show(stage: str, done: int, total: int | None) -> None:
        work = stage.split(": ")[0] if stage.startswith("run ") else stage
        if work not in begun:
            begun.add(work)
            progress.say(work)
        progress.stage(stage, done, total)

    return show


def _seeds(text: str) -> list[int]:
    try:
        found = [int(each) for each in text.split(",")]
    except ValueError:
        found = []
    if not found or min(found) < 0 or max(found) > MOST_SEED:
        raise ConfigurationError(
            f'--seeds is "{text}": expected whole numbers from 0 to {MOST_SEED} with commas between, such as 0,1,2'
        )
    return found


def _show(result: Comparison, folder: Path) -> None:
    from glassformer.cli.showing import say
    from glassformer.compare.report import columns, rows, sentences

    table = [columns(result), *rows(result)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for name, *numbers in table:
        cells = [f"{cell:>{width}}" for cell, width in zip(numbers, widths[1:], strict=True)]
        say("  ".join([f"{name:{widths[0]}}", *cells]))
    say("")
    for sentence in sentences(result):
        say(sentence)
    say(f"\nThe report is {folder / 'report.html'}, its picture {folder / 'figure.png'}.")
