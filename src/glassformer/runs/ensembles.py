"""Ensembles of runs: several runs that were trained alike, such as with other seeds, as one run that writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from glassformer.decoding import Ensemble, Mean
from glassformer.errors import ConfigurationError, InputError
from glassformer.tasks.run import Run
from glassformer.tasks.writing import Writer

MEAN: Mean = "probabilities"


def ensemble(runs: Sequence[Run], mean: Mean = MEAN) -> Run:
    """The runs as one, whose models write together: each token by the mean of their probabilities.

    They may differ in size, family and seed, but must read and write the same tokens. What else decides how outputs are
    searched for, the section [decode], is the first run's.
    """
    if not runs:
        raise ConfigurationError("an ensemble needs one run at least")
    first, *others = runs
    for number, run in enumerate(runs):
        if isinstance(run.model, Ensemble):
            raise InputError(f"{_name(run, number)} is an ensemble already: name all runs at once")
        if not isinstance(run, Writer):
            raise InputError(
                f"{_name(run, number)} was trained for {run.task.kind}: only runs that write text form an ensemble; "
                "use one run"
            )
    for number, run in enumerate(others, 1):
        _check_alike(first, run, _name(first, 0), _name(run, number))
    made = type(first)(first.recipe, Ensemble([run.model for run in runs], mean), first.assets, first.path)
    made.others = tuple(run.path for run in others if run.path is not None)
    return made


def _name(run: Run, number: int) -> str:
    return f"run {number + 1}" if run.path is None else str(run.path)


def _check_alike(first: Any, run: Any, name: str, other: str) -> None:
    """Refuse a run that does not read and write as the first one does."""
    if run.task.kind != first.task.kind:
        raise InputError(
            f"{other} was trained for {run.task.kind}, but {name} for {first.task.kind}: "
            "the runs of an ensemble have the same task"
        )
    if run.device != first.device:
        raise InputError(f"{other} is on {run.device}, but {name} on {first.device}: load both on the same device")
    sides = ("source", "target") if len(first.assets.tokenizers) == 2 else ("text",)
    for side, own, theirs in zip(sides, first.assets.tokenizers, run.assets.tokenizers, strict=True):
        if own is not theirs and own.to_json() != theirs.to_json():
            raise InputError(
                f"{other} has another tokenizer of the {side} than {name}: "
                "the runs of an ensemble have the same tokens; train both with the same tokenizer and data"
            )
    if run.special != first.special:
        raise InputError(f"{other} has other special tokens than {name}: the runs of an ensemble have the same ones")
    known, found = first.conventions, run.conventions
    for key, value in known.items():
        if found[key] != value:
            raise InputError(
                f"{key} is {found[key]} in {other}, but {value} in {name}: the runs of an ensemble must agree on it"
            )
