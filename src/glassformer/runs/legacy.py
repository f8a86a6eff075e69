"""Run folders of Glassformer 0.1: read as what they mean today.

There [model] had the same keys for every family, some without effect, and parts were named by their classes.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from glassformer.recipe import Recipe, RecipeWarning, make_recipe
from glassformer.recipe.model import section_of
from glassformer.recipe.reading import DEFAULT_TASK, read_table
from glassformer.registry import FAMILIES, TASKS
from glassformer.runs.describing import Description

PARTS = {  # of config.json
    "PreNorm": "pre",
    "PostNorm": "post",
    "LayerNorm": "layer",
    "RMSNorm": "rms",
    "RNN": "rnn",
    "GRU": "gru",
    "LSTM": "lstm",
    "AdditiveScore": "additive",
    "MultiplicativeScore": "multiplicative",
}
RENAMED = {"norm": "residual"}  # keys of [model]
TASK_KEYS = {  # keys of [task], by its kind
    "masked-language-modelling": {"share": "mask_ratio"},
    "span-corruption": {"share": "mask_ratio", "mean": "mean_span"},
}


def read_recipe(path: Path) -> Recipe:
    """A recipe that Glassformer 0.1 wrote into a run folder, where keys without effect were common."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RecipeWarning)
        return make_recipe(upgraded_recipe(read_table(path)), str(path))


def upgraded_recipe(table: dict[str, Any]) -> dict[str, Any]:
    """Its keys by their names of today; those of [model] that its family never had are gone."""
    task = table.get("task", {"kind": DEFAULT_TASK})
    renamed = TASK_KEYS.get(task.get("kind"), {})
    task = {renamed.get(key, key): value for key, value in task.items()}
    model, train = dict(table.get("model", {})), dict(table.get("train", {}))
    model["truncate"] = train.pop("truncate", None)
    model = {RENAMED.get(key, key): value for key, value in model.items() if value is not None}
    if "pretrained" in model:
        model = {key: model[key] for key in ("pretrained", "dropout") if key in model}
    elif model.get("family") in FAMILIES and task.get("kind") in TASKS:
        known = section_of(model["family"], TASKS[task["kind"]].answer).model_fields
        model = {key: value for key, value in model.items() if key in known}
    return {**table, "task": task, "model": model, "train": train}


def upgraded_model(model: Description) -> Description:
    """The description of a model: parts by their names of today, and what was not chosen left to the family."""
    arguments = {}
    for key, value in model.arguments.items():
        if isinstance(value, dict):
            name = str(value.get("part"))
            if name == "Linear":
                continue
            value = PARTS.get(name, name)
        if value is None and key in ("positions", "attention_positions"):
            continue
        arguments[key] = value
    return Description(model.family, arguments)
