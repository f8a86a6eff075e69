"""Training: the measurements of some runs, those that were made since the last time, and when each was looked at.

No model is loaded, and nothing is written or locked: a run that another process trains goes on undisturbed.
"""

from __future__ import annotations

import math
import time
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from glassformer.files import SETTINGS, regular
from glassformer.looking.answer import Answer, Array
from glassformer.runs.folder import LOCK, RECIPE
from glassformer.runs.looks import look_steps
from glassformer.runs.metrics import METRICS, new_metrics
from glassformer.studio.views.view import Options, View

MOST = 20  # runs at once
Name = Annotated[str, Field(max_length=1000)]
Cursor = Annotated[str, Field(max_length=40, pattern=r"^(\d+-[0-9a-f]{8})?$")]


class Training(Options):
    """Which runs, and up to where the measurements of each are known: the cursors of the last answer."""

    runs: Annotated[tuple[Name, ...], Field(min_length=1, max_length=MOST)]
    cursors: Annotated[dict[Name, Cursor], Field(max_length=MOST, default_factory=dict)]


def answer(folders: Mapping[str, Path], options: Training) -> Answer:
    """The new measurements of each run: an array for each of its keys, in which what was not measured is no number."""
    runs, arrays = list[dict[str, Any]](), dict[str, Array]()
    for number, name in enumerate(options.runs):
        folder = folders[name]
        found = new_metrics(folder, options.cursors.get(name, ""))
        keys = list(dict.fromkeys(key for record in found.records for key in record))
        for key in keys:
            values = [record.get(key) for record in found.records]
            arrays[f"{number} {key}"] = np.array([math.nan if each is None else each for each in values], np.float32)
        said = {"run": name, "anew": found.anew, "cursor": found.cursor, "keys": keys, "looks": look_steps(folder)}
        runs.append({**said, **_state(folder), **(_asked(folder) if found.anew else {})})
    return Answer({"runs": runs}, arrays)


def _state(folder: Path) -> dict[str, Any]:
    """Whether a process trains the run, as its lock file says, and how many seconds ago it measured something."""
    try:
        quiet = max(0.0, time.time() - (folder / METRICS).stat().st_mtime)
    except OSError:
        quiet = None
    return {"training": (folder / LOCK).exists(), "quiet": quiet}


def _asked(folder: Path) -> dict[str, Any]:
    """What the recipe asked for: how many steps, which score was watched, which texts were looked at."""
    try:
        recipe = tomllib.loads(regular(folder / RECIPE, SETTINGS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        recipe = {}
    train, look = recipe.get("train", {}), recipe.get("look", {})
    return {"steps": train.get("steps"), "watch": train.get("watch", "loss"), "texts": look.get("texts", [])}


VIEW = View("training", Training, answer, folders="runs", keeps=False)
