"""Traces as files: what is saved is loaded, without the model; all else is refused in a sentence."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import glassformer as gf
from glassformer.decoding import Limits, beam_search
from glassformer.errors import InputError
from glassformer.looking.trace import Description, Trace

from .families import FAMILIES, KEEP, SOURCE, TARGET, translator

ABOUT = Description(
    "a “text”", "ein Text", "decoder.cross", {"encoder": [["a", "▁“", "東京"]]}, {"encoder": [[[0], [1, 2]]]}
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    model = translator()
    with gf.record(model, keep=["weights", "logits"], heads=[1, 2]) as trace:
        beam_search(model, SOURCE, KEEP, limits=Limits(1, 2, max_length=6), width=3)
    return trace.described(ABOUT).save(tmp_path / "my.trace")


@pytest.mark.parametrize("name", FAMILIES)
def test_everything_comes_back(name: str, tmp_path: Path) -> None:
    model = FAMILIES[name].model()
    with gf.record(model) as trace:
        model(*FAMILIES[name].inputs)
    found = gf.load_trace(trace.save(tmp_path / "my.trace"))
    assert found.names == trace.names
    for point in trace:
        assert torch.equal(found[point], trace[point])
        assert found.kept.axes_of(point) == trace.kept.axes_of(point)
    assert repr(found) == repr(trace)


def test_so_do_labels_heads_and_the_tree(path: Path) -> None:
    model = translator()
    with gf.record(model, keep="weights", heads=[1, 2]) as trace:
        beam_search(model, SOURCE, KEEP, limits=Limits(1, 2, max_length=6), width=3)
    found = gf.load_trace(path)
    assert found.about == ABOUT
    assert found.axes("decoder.0.cross")["head"] == [1, 2]
    assert [tree.nodes for tree in found.beams] == [tree.nodes for tree in trace.beams]
    assert found.beams[0].path(found.beams[0].nodes[-1])
    assert found.words().axes("encoder.0.self")["key"] == ["a", "“東京"]


def test_several_calls_come_back_in_their_order(tmp_path: Path) -> None:
    model = translator()
    with gf.record(model, keep="logits") as trace:
        for length in range(1, 13):
            model(SOURCE, torch.ones(2, length, dtype=torch.long))
    found = gf.load_trace(trace.save(tmp_path / "my.trace"))
    assert [each.shape[1] for each in found.calls("logits")] == list(range(1, 13))


def test_a_trace_opens_without_the_model_and_patches_another(path: Path) -> None:
    code = f"import glassformer as gf; print(gf.load_trace({str(path)!r})['decoder.1.cross'].shape[1])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    assert run.stdout == "2\n"
    model = translator()
    with gf.record(model) as trace:
        before = model(SOURCE, TARGET, KEEP)
    loaded = gf.load_trace(trace.save(path))
    with gf.intervene(model) as edit:
        edit.patch("encoder.output", loaded)
        assert torch.equal(model(SOURCE.flip(1), TARGET, KEEP), before)


def test_nothing_cannot_be_saved(tmp_path: Path) -> None:
    with gf.record(translator()) as trace:
        pass
    with pytest.raises(InputError, match=r"^nothing was recorded, so there is no trace to save: run the model inside "):
        trace.save(tmp_path / "my.trace")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there(path: Path) -> None:
    trace: Trace = gf.load_trace(path)
    with pytest.raises(InputError, match=r"my.trace cannot be written: there is no folder .*no$"):
        trace.save(path.parent / "no" / "my.trace")


def rewrite(path: Path, **metadata: str) -> None:
    """The same tensors with another header."""
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        old = dict(file.metadata())
    save_file(load_file(path), path, {**old, **metadata})


def without(path: Path, *keys: str, **more: Any) -> str:
    """The JSON of a trace without some keys, and with others."""
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        facts = json.loads(file.metadata()["trace"])
    return json.dumps({key: value for key, value in facts.items() if key not in keys} | more)


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda path: path.unlink(), "there is no such file"),
        (lambda path: (path.unlink(), path.mkdir()), "is a folder: name the file of a trace"),
        (lambda path: path.write_bytes(b""), "is no trace: expected a file that trace.save"),
        (
            lambda path: path.write_text("hello, this is no trace at all"),
            "is no trace: expected a file that trace.save",
        ),
        (lambda path: save_file({"x": torch.ones(1)}, path), "is no trace: expected a file that trace.save"),
        (lambda path: path.write_bytes(path.read_bytes()[:-7]), "is damaged: "),
        (lambda path: path.write_bytes(path.read_bytes()[:100]), "is damaged: "),
        (lambda path: rewrite(path, version="2"), "is a trace of version 2: this Glassformer reads version 1"),
        (lambda path: rewrite(path, trace="{"), "is damaged: its header is wrong at the beginning"),
        (lambda path: rewrite(path, trace=without(path, "axes")), "is damaged: its header is wrong at axes"),
        (
            lambda path: rewrite(path, trace=without(path, beams=[[[1]]])),
            "is damaged: its header is wrong at beams.0.0",
        ),
        (lambda path: rewrite(path, trace=without(path, axes={})), "is damaged: its header does not fit the tensor"),
        (
            lambda path: rewrite(path, trace=without(path, axes={"logits": {"token": 1}})),
            "is damaged: its header does ",
        ),
    ],
)
def test_what_is_no_trace_is_refused_in_a_sentence(path: Path, damage: Any, sentence: str) -> None:
    damage(path)
    with pytest.raises(InputError, match=rf"my.trace:? {sentence}") as error:
        gf.load_trace(path)
    assert "\n" not in str(error.value)


def flipped(path: Path, at: int) -> None:
    """One bit is another, so many bytes before the end."""
    content = bytearray(path.read_bytes())
    content[-at] ^= 1
    path.write_bytes(content)


def test_a_flipped_bit_is_found_in_numbers_and_in_words(path: Path) -> None:
    size = len(path.read_bytes())
    header = size - path.read_bytes().index("▁“".encode())
    for at in (1, 1000, header):
        flipped(path, at)
        with pytest.raises(InputError, match=r"my.trace is damaged: "):
            gf.load_trace(path)
        flipped(path, at)
    assert gf.load_trace(path).names


def test_a_trace_without_a_checksum_is_read(path: Path) -> None:
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        metadata = dict(file.metadata())
    assert len(metadata.pop("sha256").strip("0")) > 40
    save_file(load_file(path), path, metadata)
    assert gf.load_trace(path).about == ABOUT


def test_the_same_trace_is_the_same_file(path: Path) -> None:
    again = gf.load_trace(path).save(path.parent / "again.trace")
    assert again.read_bytes() == path.read_bytes()


def test_a_missing_tensor_is_named(path: Path) -> None:
    tensors = load_file(path)
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        metadata = file.metadata()
    del tensors["logits"]
    save_file(tensors, path, metadata)
    with pytest.raises(InputError, match=r"my.trace is damaged: the tensor logits is missing$"):
        gf.load_trace(path)
