"""The claims of the lecture notes, measured: `experiment`."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import Annotated

import typer

from glassformer.cli.app import STUDY, app
from glassformer.cli.options import AsJson, Seed, out
from glassformer.errors import ConfigurationError, InputError, Stopped

HOME = Path("runs") / "experiments"


@app.command(rich_help_panel=STUDY)
def experiment(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="see --list", show_default=False)] = None,
    seed: Seed = 0,
    folder: Annotated[Path | None, out("the folder to write; runs/experiments/NAME if not given")] = None,
    every: Annotated[bool, typer.Option("--all", metavar="", help="all of them, and a page that shows them")] = False,
    again: Annotated[bool, typer.Option("--again", metavar="", help="with --all: also what is done already")] = False,
    listed: Annotated[bool, typer.Option("--list", metavar="", help="list all experiments")] = False,
    as_json: AsJson = False,
) -> None:
    """Test a claim of the lecture notes by a small experiment: a figure, its numbers, and a sentence of the result.

    It writes figure.png, figure.svg, data.csv and report.md.

    - `glassformer experiment --list`
    - `glassformer experiment order-blind`
    - `glassformer experiment order-blind --seed 1 --out mine --json`
    - `glassformer experiment --all`
    """
    if listed:
        _list(as_json)
        return
    if every == (name is not None):
        raise ConfigurationError("name an experiment, or give --all, but not both: see glassformer experiment --list")
    if again and not every:
        raise ConfigurationError("--again goes with --all: a single experiment is always run anew")
    try:
        if every:
            _all(HOME if folder is None else folder, seed, again, as_json)
        else:
            _one(str(name), seed, folder, as_json)
    except Stopped as stopped:  # its training was in a temporary folder: there is nothing to resume
        sys.exit(128 + stopped.signal)


def _list(as_json: bool) -> None:
    from glassformer.experiments import EXPERIMENTS

    if as_json:
        sys.stdout.write(
            json.dumps({each.name: each.claim for each in EXPERIMENTS.values()}, ensure_ascii=False) + "\n"
        )
        return
    width = max(map(len, EXPERIMENTS))
    for each in EXPERIMENTS.values():
        sys.stdout.write(f"{each.name:{width}}  {each.claim}\n")


def _one(name: str, seed: int, folder: Path | None, as_json: bool) -> None:
    from glassformer.cli.progress import TrainingProgress
    from glassformer.experiments import find
    from glassformer.experiments.report import read, verdict, write
    from glassformer.experiments.workers import Workers, cores
    from glassformer.writing import make_folder

    found, start = find(name), perf_counter()
    place = HOME / name if folder is None else folder
    before = read(place)
    if before is not None and before.name != found.name:
        raise InputError(f"{place} holds the experiment {before.name}: choose another folder")
    make_folder(place)
    with TrainingProgress() as progress, Workers(cores()) as workers:
        finding = found.run(seed, progress.stage, workers)
    result = write(found, finding, seed, place)
    if as_json:
        facts = {**asdict(result), "folder": str(place), "seconds": round(perf_counter() - start, 1)}
        sys.stdout.write(json.dumps(facts, ensure_ascii=False) + "\n")
        return
    sys.stdout.write(f"claim     {found.claim}\nmeasured  {finding.measured}\nholds     {verdict(finding.holds)}\n")
    sys.stdout.write(f"{place / 'report.md'}, figure.png, figure.svg, data.csv\n")


def _all(folder: Path, seed: int, again: bool, as_json: bool) -> None:
    from glassformer.cli.progress import TrainingProgress
    from glassformer.experiments.report import build
    from glassformer.experiments.workers import Workers, cores

    with TrainingProgress() as progress, Workers(cores()) as workers:
        results = build(folder, seed, lambda each: each.run(seed, progress.stage, workers), again, progress.say)
    if as_json:
        sys.stdout.write(json.dumps([asdict(each) for each in results], ensure_ascii=False) + "\n")
        return
    for each in results:
        sys.stdout.write(f"{'holds' if each.holds else 'does not hold':13}  {each.name}\n")
    sys.stdout.write(f"{folder / 'index.html'}, index.md\n")
