"""Looks: what [look] of a recipe keeps while a model is trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import labels
from glassformer.errors import ConfigurationError, InputError
from glassformer.recipe import make_recipe
from glassformer.runs import train
from glassformer.runs.looks import read_looks
from glassformer.runs.training import Listener
from glassformer.training.checkpoints import weights
from tiny import IDLE, table

TEXTS = ["a b c", "d e"]
MADE = table(IDLE, {"train": {"steps": 7, "save_every": 3, "validate_every": 3, "ema": 0.5}})


def asked(**look: Any) -> Any:
    return make_recipe({**MADE, "look": {"texts": TEXTS, "every": 2} | look})


class Killed(Exception):  # noqa: N818  (it is not an error)
    """Stands for a process that ends without a chance to do anything."""


class Killing(Listener):
    def __init__(self, step: int) -> None:
        self.last = step

    def tick(self, record: dict[str, Any]) -> None:
        if record["step"] == self.last:
            raise Killed


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "looks").iterdir()}


def test_looks_are_taken_before_training_every_so_many_steps_and_at_the_end(tmp_path: Path) -> None:
    run = train(asked(), tmp_path / "run")
    found = read_looks(tmp_path / "run")
    assert [step for step, _ in found] == [0, 2, 4, 6, 7]
    _, last = found[-1]
    assert last.input.split("\n") == TEXTS
    assert {name.split(".")[-1] for name in last.names} == {"weights"}
    assert last["encoder.0.self"].dtype == torch.float16
    assert last["encoder.0.self"].shape[0] == len(TEXTS)
    assert max(len(data) for data in files(tmp_path / "run").values()) < 20_000
    assert run.path == tmp_path / "run"


@pytest.mark.parametrize("step", [2, 4, 5])
def test_a_killed_training_resumes_to_the_same_looks(tmp_path: Path, step: int) -> None:
    whole = train(asked(), tmp_path / "whole")
    with pytest.raises(Killed):
        train(asked(), tmp_path / "parts", listener=Killing(step))
    parts = train(asked(), tmp_path / "parts", resume=True)
    assert files(tmp_path / "parts") == files(tmp_path / "whole")
    ours, theirs = weights(parts.model), weights(whole.model)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_looking_changes_nothing_of_the_training(tmp_path: Path) -> None:
    looked = train(asked(), tmp_path / "looked")
    plain = train(make_recipe(MADE), tmp_path / "plain")
    ours, theirs = weights(looked.model), weights(plain.model)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    with pytest.raises(InputError, match="plain was not looked at while it was trained"):
        read_looks(tmp_path / "plain")


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["a", "  "], "look.texts: there is nothing to look at in '  '"),
        (["a " * 200], r"look.texts: 'a a .* has \d+ tokens or more, and 128 are looked at at most"),
    ],
)
def test_texts_that_cannot_be_looked_at_are_refused_before_anything_is_written(
    texts: list[str], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        train(asked(texts=texts), tmp_path / "run")
    assert not (tmp_path / "run" / "recipe.toml").exists()


def test_a_model_without_attention_is_refused(tmp_path: Path) -> None:
    made = labels.text_recipe(labels.table(tmp_path / "t.tsv", labels.examples(60)))
    made = {**made, "model": {"family": "recurrent", "width": 8}, "look": {"texts": ["red apple"]}}
    with pytest.raises(ConfigurationError, match="this model has no attention to look at; leave out"):
        train(make_recipe(made), tmp_path / "run")
