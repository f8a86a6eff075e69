"""A checkpoint from a stranger: it names no file outside its folder, and takes no memory that its weights do not."""

import json
import os
import threading
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from glassformer.errors import InputError
from glassformer.interop import load, save
from glassformer.interop.checkpoints import CONFIG, INDEX, WEIGHTS
from glassformer.models import gpt2


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    save(gpt2(vocabulary=50, width=16, heads=2, layers=1, hidden=32, length=16), tmp_path / "checkpoint")
    return tmp_path / "checkpoint"


@pytest.mark.parametrize("name", ["../secret.safetensors", "/secret.safetensors", "a/../../secret.safetensors"])
def test_an_index_names_no_file_outside_the_folder(checkpoint: Path, name: str) -> None:
    weights = load_file(checkpoint / WEIGHTS)
    save_file(weights, checkpoint.parent / "secret.safetensors")
    (checkpoint / WEIGHTS).unlink()
    (checkpoint / INDEX).write_text(json.dumps({"weight_map": dict.fromkeys(weights, name)}))
    with pytest.raises(InputError, match=r"names secret\.safetensors, which is not there"):
        load(checkpoint)


@pytest.mark.parametrize(
    "changes",
    [{"vocab_size": 10**9}, {"n_layer": 10**7}, {"n_embd": 10**6}, {"n_positions": 10**10}, {"n_inner": 10**12}],
)
def test_a_config_that_asks_for_more_than_its_weights_is_refused_at_once(checkpoint: Path, changes: Any) -> None:
    config = json.loads((checkpoint / CONFIG).read_text(encoding="utf-8"))
    (checkpoint / CONFIG).write_text(json.dumps(config | changes), encoding="utf-8")
    with pytest.raises(InputError, match="for which its weights are too few"):
        load(checkpoint)


def test_a_config_that_is_too_deep_is_a_sentence(checkpoint: Path) -> None:
    (checkpoint / CONFIG).write_text('{"a":' * 100_000, encoding="utf-8")
    with pytest.raises(InputError, match=r"config\.json cannot be read"):
        load(checkpoint)


def test_a_header_that_lies_about_its_tensors_is_damage(checkpoint: Path) -> None:
    header = json.dumps({"a": {"dtype": "F32", "shape": [10**12], "data_offsets": [0, 4 * 10**12]}}).encode()
    (checkpoint / WEIGHTS).write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(InputError, match=r"model\.safetensors is damaged"):
        load(checkpoint)


def a_pipe(path: Path) -> None:
    """One that somebody writes nothing into: who opens it does not wait, and finds nothing."""
    path.unlink()
    os.mkfifo(path)
    threading.Thread(target=lambda: path.open("wb").close(), daemon=True).start()


def gigabytes(path: Path) -> None:
    with path.open("ab") as file:
        file.truncate(1 << 40)


@pytest.mark.parametrize(("make", "reason"), [(a_pipe, "It is a pipe"), (gigabytes, "at most 16,777,216 are read")])
def test_settings_that_have_no_end_are_refused_unopened(
    make: Callable[[Path], None], reason: str, checkpoint: Path
) -> None:
    make(checkpoint / CONFIG)
    with pytest.raises(InputError, match=rf"config\.json cannot be read: .*{reason}"):
        load(checkpoint)


def test_of_the_hub_only_data_is_downloaded(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub, asked = pytest.importorskip("huggingface_hub"), []

    def snapshot_download(name: str, allow_patterns: list[str]) -> str:
        asked.append((name, allow_patterns))
        return str(checkpoint)

    monkeypatch.setattr(hub, "snapshot_download", snapshot_download)
    load("somebody/something")
    ((name, patterns),) = asked
    assert name == "somebody/something"
    files = ["config.json", WEIGHTS, "spiece.model", "vocab.txt", "modeling.py", "pytorch_model.bin", "x.pkl", "x.pt"]
    allowed = {each for each in files if any(fnmatch(each, pattern) for pattern in patterns)}
    assert allowed == {*files[:4]}
