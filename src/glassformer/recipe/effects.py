"""Keys without effect: in some combinations a key changes nothing, and a warning says so."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any

from glassformer.recipe.recipe import Recipe

Reason = Callable[[Recipe], str | None]  # why some keys have no effect in a recipe; None: they have one


def _unless(key: str, *values: object) -> Reason:
    """The keys need another key to have one of some values."""
    section, name = key.split(".")

    def reason(recipe: Recipe) -> str | None:
        found = getattr(getattr(recipe, section), name)
        wanted = " or ".join(repr(value) for value in values)
        return None if found in values else f"it needs {key} = {wanted}, not {found!r}"

    return reason


def _steps(recipe: Recipe) -> str | None:
    """What says how long training is, if it is not train.steps."""
    longer = next((key for key in ("minutes", "tokens") if getattr(recipe.train, key) is not None), None)
    return None if longer is None else f"train.{longer} says how long training is"


def _unfreezing(recipe: Recipe) -> str | None:
    if recipe.tune.mode != "unfreeze":
        return _unless("tune.mode", "unfreeze")(recipe)
    if _steps(recipe) is None and recipe.tune.every >= recipe.train.steps:
        return f"training ends after train.steps = {recipe.train.steps}, before a block is unfrozen"
    return None


def _own_split(split: str) -> Reason:
    """A fraction is split off only where the source has no split of its own."""

    def reason(recipe: Recipe) -> str | None:
        source = recipe.source
        own = source.makes_splits or getattr(source, split, None) is not None
        return f"the source has a {split} split of its own" if own else None

    return reason


def _nothing_split_off(recipe: Recipe) -> str | None:
    def left(split: str) -> bool:
        return _own_split(split)(recipe) is None and bool(getattr(recipe.data, split))

    return None if left("valid") or left("test") else "no example is split off"


def _given_tokenizer(recipe: Recipe) -> str | None:
    return None if recipe.tokenizer.path is None else "tokenizer.path names a tokenizer that is trained already"


def _checkpoint(recipe: Recipe) -> str | None:
    return None if recipe.pretrained is None else "model.pretrained brings its own tokenizer"


def _not_searched(recipe: Recipe) -> str | None:
    """Why there is no beam search, if there is none."""
    if recipe.decode.temperature > 0:
        return "decode.temperature is above 0: tokens are drawn"
    return "decode.beam is 1: greedy" if recipe.decode.beam == 1 else None


def _patience(recipe: Recipe) -> str | None:
    train = recipe.train
    never = _steps(recipe) is None and train.patience * train.validate_every >= train.steps
    return "training ends before so many validations" if train.patience and never else None


def _never_varied(recipe: Recipe) -> str | None:
    return None if recipe.task.varies else f"examples of the task {recipe.task.kind} are not varied"


def _same_views(recipe: Recipe) -> str | None:
    if recipe.tokenizer.dropout or any(getattr(recipe.task, key) for key in recipe.task.varied_by):
        return None
    keys = " or ".join(["tokenizer.dropout", *(f"task.{key}" for key in recipe.task.varied_by)])
    return f"all views are equal without {keys}"


RULES: list[tuple[tuple[str, ...], Reason]] = [
    (("tune.rank", "tune.alpha", "tune.dropout", "tune.targets"), _unless("tune.mode", "lora")),
    (("tune.every",), _unfreezing),
    (("train.muon_lr",), _unless("train.optimiser", "muon")),
    (("train.weight_decay",), _unless("train.optimiser", "adamw", "muon")),
    (("train.decay",), _unless("train.schedule", "wsd")),
    (
        ("train.ema",),
        lambda recipe: "the weights that are kept are those of train.average" if recipe.train.average > 1 else None,
    ),
    (
        ("train.average",),
        lambda recipe: "the average of one checkpoint is that checkpoint" if recipe.train.average == 1 else None,
    ),
    (("train.patience",), _patience),
    (("train.steps",), _steps),
    (("train.tokens",), lambda recipe: None if recipe.train.minutes is None else _steps(recipe)),
    (("decode.beam",), lambda recipe: _not_searched(recipe) if recipe.decode.temperature > 0 else None),
    (("decode.length_penalty", "decode.early_stopping", "decode.renormalise"), _not_searched),
    (
        ("decode.top_k", "decode.top_p", "decode.min_p"),
        lambda recipe: None if recipe.decode.temperature > 0 else "decode.temperature is 0: no token is drawn",
    ),
    (("tokenizer.*",), _checkpoint),
    (
        ("tokenizer.kind", "tokenizer.vocabulary", "tokenizer.lowercase", "tokenizer.contractions", "tokenizer.sample"),
        _given_tokenizer,
    ),
    (
        ("tokenizer.vocabulary", "tokenizer.sample"),
        lambda recipe: "bytes are a fixed vocabulary" if recipe.tokenizer.kind == "byte" else None,
    ),
    (("data.views", "tokenizer.dropout"), _never_varied),
    (("data.views",), _same_views),
    (("tokenizer.dropout",), _unless("tokenizer.kind", "bpe")),
    (("tokenizer.contractions",), _unless("tokenizer.kind", "word")),
    (
        ("train.consistency",),
        lambda recipe: None if recipe.task.answer == "target" else "it needs a task whose models write a target",
    ),
    (("data.valid",), _own_split("valid")),
    (("data.test",), _own_split("test")),
    (("data.seed",), _nothing_split_off),
    (("look.*",), lambda recipe: None if recipe.task.tokenizers else "no texts are read"),
    (("look.every",), lambda recipe: None if recipe.look.texts else "look.texts names no text"),
]


def without_effect(recipe: Recipe) -> dict[str, str]:
    """The keys that change nothing in this recipe, and why."""
    keys = [
        f"{section}.{key}"
        for section in ("data", "tokenizer", "tune", "train", "look", "decode")
        for key in type(getattr(recipe, section)).model_fields
    ]
    by_rule = [(patterns, reason(recipe)) for patterns, reason in RULES]
    reasons = [*(((pattern,), why) for pattern, why in recipe.task.unused.items()), *by_rule]
    found: dict[str, str] = {}
    for patterns, why in reasons:
        for key in keys if why is not None else ():
            if any(fnmatchcase(key, pattern) for pattern in patterns):
                found.setdefault(key, str(why))
    return found


def reset_idle_keys(recipe: Recipe) -> Recipe:
    """The recipe with its keys without effect set to their defaults, so that recipes that do the same are equal."""
    changes: dict[str, dict[str, Any]] = {}
    for key in without_effect(recipe):
        section, name = key.split(".")
        default = type(getattr(recipe, section)).model_fields[name].default
        changes.setdefault(section, {})[name] = recipe.task.defaults.get(section, {}).get(name, default)
    sections = {name: getattr(recipe, name).model_copy(update=update) for name, update in changes.items()}
    return recipe.model_copy(update=sections)
