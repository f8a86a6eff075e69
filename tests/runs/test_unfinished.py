"""A run can be used before its training has ended, and by any of its checkpoints."""

import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import glassformer as gf
from glassformer.errors import InputError, RunError
from glassformer.runs import train
from glassformer.training import Checkpoints
from glassformer.training.averaging import mean
from tiny import IDLE, recipe


def unfinished(folder: Path, **changes: Any) -> Checkpoints:
    """A run as a killed training leaves it, at step 8 of 8."""
    train(recipe(IDLE, {"train": {"steps": 8, "lr": 0.05, "warmup": 0, **changes}}), folder)
    for name in ("model.safetensors", "checksums.json"):
        (folder / name).unlink()
    return Checkpoints(folder)


def weights(folder: Path, said: str, **options: Any) -> dict[str, Tensor]:
    """The weights that a run is loaded with, which it must say something about."""
    with pytest.warns(UserWarning, match=f"^{folder}{said}"):
        run = gf.load(folder, "cpu", **options)
    return dict(run.model.state_dict())


def same(found: dict[str, Tensor], expected: dict[str, Tensor]) -> bool:
    return all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_an_unfinished_run_is_used_by_its_best_checkpoint(tmp_path: Path) -> None:
    checkpoints = unfinished(tmp_path)
    step = checkpoints.all()[-1].state()["best"][1]
    found = weights(tmp_path, f" is unfinished: using its best checkpoint, step {step} of 8$")
    assert same(found, checkpoints.at(step).tensors("model"))
    run = gf.load(tmp_path, "cpu")
    assert len(run.evaluate(run.examples("test")[:2]).facts()) > 0


def test_without_a_validation_by_its_newest(tmp_path: Path) -> None:
    checkpoints = unfinished(tmp_path, validate_every=100)
    for checkpoint in checkpoints.all():
        if checkpoint.step == 8:  # which the end of training has validated
            shutil.rmtree(checkpoint.path)
    found = weights(tmp_path, " is unfinished: using its newest checkpoint, step 6 of 8$")
    assert same(found, checkpoints.at(6).tensors("model"))


def test_a_mean_of_checkpoints_and_a_moving_average_are_used_as_in_the_end(tmp_path: Path) -> None:
    checkpoints = unfinished(tmp_path / "mean", average=3)
    found = weights(tmp_path / "mean", " is unfinished: using the mean of its last 3 checkpoints, step 8 of 8$")
    assert same(found, mean(checkpoints.at(step).tensors("model") for step in (8, 6, 4)))
    checkpoints = unfinished(tmp_path / "moving", ema=0.5)
    found = weights(tmp_path / "moving", ": using its newest checkpoint, step 8 of 8$", checkpoint="last")
    assert same(found, checkpoints.at(8).tensors("average"))


def test_a_checkpoint_is_chosen_by_its_step(tmp_path: Path) -> None:
    checkpoints = unfinished(tmp_path, keep=9)
    for step in (2, "4", 6):
        found = weights(tmp_path, f": using its checkpoint, step {step} of 8$", checkpoint=step)
        assert same(found, checkpoints.at(int(step)).tensors("model"))
    with pytest.raises(RunError, match=r"has no checkpoint of step 5: it has those of 2, 4, 6, 8$"):
        gf.load(tmp_path, "cpu", checkpoint=5)
    with pytest.raises(RunError, match=r'checkpoint is "first": expected a step, best or last'):
        gf.load(tmp_path, "cpu", checkpoint="first")
    (checkpoints.at(4).path / "model.safetensors").write_bytes(b"")
    with pytest.raises(RunError, match=r"step-00000004 is damaged: .*choose another one"):
        gf.load(tmp_path, "cpu", checkpoint=4)


def test_a_finished_run_is_used_as_it_is_unless_a_checkpoint_is_chosen(tmp_path: Path) -> None:
    run = train(recipe(IDLE, {"train": {"lr": 0.05, "warmup": 0}}), tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert same(gf.load(tmp_path, "cpu").model.state_dict(), run.model.state_dict())
    found = weights(tmp_path, ": using its checkpoint, step 2 of 4$", checkpoint=2)
    assert same(found, Checkpoints(tmp_path).at(2).tensors("model"))
    shutil.rmtree(tmp_path / "checkpoints")
    with pytest.raises(RunError, match="has no checkpoint"):
        gf.load(tmp_path, "cpu", checkpoint=2)


def test_a_run_without_weights_says_how_to_go_on(tmp_path: Path) -> None:
    unfinished(tmp_path)
    shutil.rmtree(tmp_path / "checkpoints")
    with pytest.raises(InputError, match=r"has no model.safetensors and no checkpoint: continue its training"):
        gf.load(tmp_path, "cpu")
