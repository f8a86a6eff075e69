"""Checkpoints exist completely or not at all; a damaged one causes a warning and is skipped."""

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError

from glassformer.errors import TrainingError
from glassformer.training import checkpoints as module
from glassformer.training.checkpoints import Checkpoints, load_weights, weights

from .helpers import model


def save(saver: Checkpoints, step: int, best: int | None = None) -> None:
    tensors = {"model": {"a": torch.full((300,), float(step))}, "optimiser": {"a/exp_avg": torch.ones(2)}}
    saver.save(step, tensors, {"step": step}, best)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "checkpoints").iterdir())


def test_what_is_saved_is_what_is_read(tmp_path: Path) -> None:
    saver = Checkpoints(tmp_path)
    save(saver, 500)
    latest = saver.latest_good()
    assert latest is not None
    assert latest.path == tmp_path / "checkpoints" / "step-00000500"
    assert names(tmp_path) == ["step-00000500"]
    assert latest.step == 500
    assert latest.state() == {"step": 500}
    assert torch.equal(latest.weights()["a"], torch.full((300,), 500.0))
    sums = json.loads((latest.path / "checksums.json").read_text())
    assert sums.keys() == {"model.safetensors", "optimiser.safetensors", "state.json"}


def test_the_last_few_and_the_best_are_kept(tmp_path: Path) -> None:
    saver = Checkpoints(tmp_path, keep=2)
    for step in range(1, 7):
        save(saver, step, best=2 if step >= 2 else None)
    assert [one.step for one in saver.all()] == [2, 5, 6]


def truncate(path: Path) -> None:
    with path.open("rb+") as file:
        file.truncate(path.stat().st_size // 2)


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("harm", [truncate, flip, Path.unlink], ids=["truncated", "flipped", "missing"])
@pytest.mark.parametrize("name", ["model.safetensors", "optimiser.safetensors", "state.json", "checksums.json"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(tmp_path: Path, harm: Any, name: str) -> None:
    saver = Checkpoints(tmp_path)
    save(saver, 1)
    save(saver, 2)
    harm(saver.at(2).path / name)
    with pytest.warns(UserWarning, match="step-00000002 is damaged") as warned:
        latest = saver.latest_good()
    assert name in str(warned[0].message)
    assert latest is not None
    assert latest.step == 1
    save(saver, 2)  # training comes by again, and replaces it
    again = saver.latest_good()
    assert again is not None
    assert again.step == 2
    assert names(tmp_path) == ["step-00000001", "step-00000002"]


def full(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def full_rust(*_: Any, **__: Any) -> None:
    raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")


@pytest.mark.parametrize(
    ("target", "name", "failure"),
    [
        (module, "save_file", full_rust),
        (Path, "write_text", full),
        (module, "flush", full),
        (Path, "replace", full),
        (Path, "mkdir", full),
    ],
)
def test_a_full_disk_is_a_sentence_and_leaves_the_last_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: Any, name: str, failure: Any
) -> None:
    saver = Checkpoints(tmp_path)
    save(saver, 1)
    with monkeypatch.context() as patch:
        patch.setattr(target, name, failure)
        with pytest.raises(
            TrainingError, match=r"step-00000002 cannot be written: .*No space left.*step-00000001 is int"
        ):
            save(saver, 2)
    assert names(tmp_path) == ["step-00000001"]
    latest = saver.latest_good()
    assert latest is not None
    assert latest.step == 1


def test_what_a_killed_process_left_is_swept_away(tmp_path: Path) -> None:
    saver = Checkpoints(tmp_path)
    save(saver, 1)
    shutil.copytree(saver.at(1).path, tmp_path / "checkpoints" / ".step-00000002.1.new")
    assert [one.step for one in saver.all()] == [1]
    save(saver, 3)
    assert names(tmp_path) == ["step-00000001", "step-00000003"]


def test_tied_weights_are_stored_once_and_come_back_tied() -> None:
    net, other = model(seed=1), model(seed=2)
    saved = {name: tensor.clone() for name, tensor in weights(net).items()}
    assert [name for name in saved if name.endswith("embedding.weight")] == ["encoder.embedding.weight"]
    load_weights(other, saved)
    assert all(torch.equal(*pair) for pair in zip(net.state_dict().values(), other.state_dict().values(), strict=True))
    assert other.head.embedding.weight is other.encoder.embedding.weight  # type: ignore[union-attr]


def test_weights_of_another_model_are_refused_by_name() -> None:
    net = model()
    saved = dict(weights(net))
    with pytest.raises(TrainingError, match=r"lack decoder\.norm\.bias"):
        load_weights(net, {name: tensor for name, tensor in saved.items() if name != "decoder.norm.bias"})
    with pytest.raises(TrainingError, match="hold elsewhere"):
        load_weights(net, saved | {"elsewhere": torch.ones(1)})
    with pytest.raises(TrainingError, match=r"decoder\.norm\.bias has the shape \(2,\), but the model expects \(16,\)"):
        load_weights(net, saved | {"decoder.norm.bias": torch.ones(2)})
