"""The runs of a folder and how far they have come: `runs`. It reads small files, and of weights their header."""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from math import prod
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from glassformer.cli.app import USE, app
from glassformer.cli.choosing import RUNS
from glassformer.cli.options import AsJson, path_of
from glassformer.errors import InputError
from glassformer.files import SETTINGS, regular
from glassformer.locking import held
from glassformer.writing import IMPORT, RUN_FILES, is_run

DEPTH = 3  # of folders within folders, such as those of a comparison
State = Literal["training", "unfinished", "finished", "imported", "damaged"]


@dataclass
class Listed:
    """What is known of a run; `best` is its best value of `watch` in a validation."""

    path: str
    state: State
    changed: str
    task: str | None = None
    family: str | None = None
    parameters: int | None = None
    step: int | None = None
    steps: int | None = None
    watch: str | None = None
    best: float | None = None


@app.command(rich_help_panel=USE)
def runs(
    given: Annotated[
        Path | None,
        typer.Argument(metavar="DIR", parser=path_of, help="a folder of runs; ./runs if not given", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the runs in a folder, newest first: task, model, steps, best validation, state.

    A run is training, unfinished, finished, imported or damaged. An unfinished one can be used, too: by its best
    checkpoint, or by the one that --checkpoint names.

    - `glassformer runs`
    - `glassformer runs ../elsewhere/runs --json`
    """
    folder = RUNS if given is None else given
    if not folder.is_dir():
        raise InputError(f"{folder}: there is no such folder")
    found = sorted((_listed(each) for each in _folders(folder)), key=lambda each: each.changed, reverse=True)
    if as_json:
        sys.stdout.write(json.dumps([asdict(each) for each in found], ensure_ascii=False) + "\n")
        return
    if not found:
        raise InputError(f"there is no run in {folder}: make one with glassformer train or glassformer import")
    _show(found)


def _show(found: list[Listed]) -> None:
    """A table, a run in each line."""
    from glassformer.cli.showing import say

    table = [("run", "task", "model", "parameters", "step", "best", "state"), *map(_row, found)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        say("  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())


def _row(run: Listed) -> tuple[str, ...]:
    steps = "" if run.step is None else f"{run.step:,}" + ("" if run.steps is None else f" of {run.steps:,}")
    best = "" if run.best is None else f"{run.watch} {run.best:.4g}"
    parameters = "" if run.parameters is None else f"{run.parameters:,}"
    return run.path, run.task or "", run.family or "", parameters, steps, best, run.state


def _folders(folder: Path, depth: int = DEPTH) -> Iterator[Path]:
    """The run folders in a folder, which may be one itself."""
    some = any((folder / name).is_file() for name in RUN_FILES) and (folder / "checkpoints").is_dir()
    if some or is_run(folder):
        yield folder
    elif depth:
        with suppress(OSError):  # of a folder that cannot be read
            for each in sorted(folder.iterdir()):
                if each.is_dir() and not each.name.startswith("."):
                    yield from _folders(each, depth - 1)


def _listed(folder: Path) -> Listed:
    imported, finished = (folder / IMPORT).is_file(), (folder / "model.safetensors").is_file()
    state: State = "imported" if imported else "finished" if finished else "unfinished"
    if held(folder / ".lock"):
        state = "training"
    written = [path for path in (folder / "metrics.jsonl", *folder.glob("*.json"), folder) if path.exists()]
    changed = datetime.fromtimestamp(written[0].stat().st_mtime, UTC).isoformat(timespec="seconds")
    found = Listed(str(folder), state, changed)
    try:
        _read(folder, found)
        _row(found)  # which can be shown
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):  # missing, or something else
        found = Listed(str(folder), "damaged", changed)
    return found


def _read(folder: Path, found: Listed) -> None:
    """Fill in what the files of a run tell."""
    config = json.loads(regular(folder / "config.json", SETTINGS).read_text(encoding="utf-8"))
    weights = sorted(folder.glob("checkpoints/step-*/model.safetensors"))
    if found.state == "imported":
        found.family = config["model_type"]
    else:
        recipe = tomllib.loads(regular(folder / "recipe.toml", SETTINGS).read_text(encoding="utf-8"))
        train = recipe.get("train", {})
        found.family, found.task = config["model"]["family"], recipe.get("task", {}).get("kind")
        found.watch = train.get("watch", "loss")
        if "tokens" not in train and "minutes" not in train:
            found.steps = train.get("steps")
        _read_progress(folder, found)
        if weights:
            state = json.loads(regular(weights[-1].with_name("state.json"), SETTINGS).read_text(encoding="utf-8"))
            found.step, found.steps = max(found.step or 0, state["step"]), state.get("steps") or found.steps
    if (folder / "model.safetensors").is_file():
        weights.append(folder / "model.safetensors")
    found.parameters = _parameters(weights[-1]) if weights else None


def _read_progress(folder: Path, found: Listed) -> None:
    """The last step and the best value of the measurements of a run."""
    records = [{"step": 0}]
    path = folder / "metrics.jsonl"
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        with suppress(ValueError):  # of a line that is being written
            records.append(json.loads(line))
    values = [value for each in records if (value := each.get(f"valid_{found.watch}")) is not None]
    found.step = records[-1]["step"]
    found.best = (min if found.watch == "loss" else max)(values, default=None)


def _parameters(path: Path) -> int:
    """The number of weights in a file of tensors, by its header; a file that was cut off is refused."""
    with regular(path).open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        if size > path.stat().st_size:
            raise ValueError(f"{path} is cut off")
        header: dict[str, Any] = json.loads(file.read(size))
        begin = file.tell()
    header.pop("__metadata__", None)
    if path.stat().st_size != begin + max(each["data_offsets"][1] for each in header.values()):
        raise ValueError(f"{path} is cut off")
    return sum(prod(each["shape"]) for name, each in header.items() if not name.endswith(".scale"))
