"""Traces: labels on axes, other forms, words in place of pieces."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import glassformer as gf
from glassformer.errors import InputError
from glassformer.looking.packing import pack
from glassformer.looking.sharpest import sharpest
from glassformer.looking.trace import Description, Trace

from .families import FAMILIES, KEEP, SOURCE, TARGET, same, translator

TEXTS = {
    "encoder": [["▁the", "▁ca", "t", "▁sat", "."], ["▁a", "▁dog", "."]],
    "decoder": [["start", "le", "▁ch", "at"], ["start", "un", "▁chien", "."]],
    "written": [["le", "▁ch", "at", "end"], ["un", "▁chien", ".", "end"]],
}
WORDS = {
    "encoder": [[[0], [1, 2], [3], [4]], [[0], [1], [2]]],
    "decoder": [[[0], [1], [2, 3]], [[0], [1], [2], [3]]],
    "written": [[[0], [1, 2], [3]], [[0], [1], [2], [3]]],
}


@pytest.fixture
def trace() -> Trace:
    model = translator()
    with gf.record(model) as found:
        model(SOURCE, TARGET, KEEP)
    return found.described(Description("the cat sat.", "le chat", "decoder.cross", TEXTS, WORDS))


def test_axes_carry_labels(trace: Trace) -> None:
    assert trace.axes("decoder.0.cross") == {
        "head": [0, 1, 2, 3],
        "token": ["le", "▁ch", "at", "end"],  # what is written, not what is read
        "key": ["▁the", "▁ca", "t", "▁sat", "."],
    }
    assert trace.axes("decoder.0.self")["token"] == trace.axes("decoder.0.self")["key"] == TEXTS["decoder"][0]
    assert trace.axes("encoder.1.after") == {"token": TEXTS["encoder"][0], "feature": list(range(16))}
    assert trace.axes("logits", 1)["token"] == TEXTS["written"][1]
    assert trace.axes("encoder.0.self", 1)["key"] == ["▁a", "▁dog", ".", "", ""]


def test_without_a_run_tokens_are_numbers(trace: Trace) -> None:
    plain = trace.described(Description())
    assert plain.axes("encoder.0.after")["token"] == ["3", "4", "5", "6", "7"]
    assert plain.axes("logits")["token"] == ["1", "12", "13", "14"]
    assert plain.shows == "decoder.cross"  # the last that there is
    assert plain.tokens("nothing") == []


def test_labels_of_classes() -> None:
    model = FAMILIES["bert-classes"].model()
    with gf.record(model) as trace:
        model(SOURCE, KEEP)
    assert trace.axes("logits") == {"label": [0, 1]}
    named = trace.described(Description(tokens={"label": [["good", "bad"]]}))
    assert named.axes("logits", 1) == {"label": ["good", "bad"]}


def test_numpy(trace: Trace) -> None:
    assert np.array_equal(trace.numpy("decoder.0.cross"), trace["decoder.0.cross"].numpy())
    assert trace.numpy("encoder.tokens").dtype == np.int64
    model = translator().bfloat16()
    with gf.record(model) as half:
        model(SOURCE, TARGET, KEEP)
    assert half.numpy("encoder.0.after").dtype == np.float32


def test_pandas(trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=dict))
    table: Any = trace.pandas("decoder.1.cross", 1)
    assert list(table) == ["head", "token", "token_text", "key", "key_text", "value"]
    row = 2 * 4 * 5 + 1 * 5 + 1  # head 2, token 1, key 1
    assert [table[name][row] for name in ("head", "token", "token_text", "key", "key_text")] == [
        2,
        1,
        "▁chien",
        1,
        "▁dog",
    ]
    assert table["value"][row] == trace["decoder.1.cross"][1, 2, 1, 1]
    assert len(table["value"]) == 4 * 4 * 5


def test_xarray(trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    def labelled(values: Any, **facts: Any) -> Any:
        return SimpleNamespace(values=values, **facts)

    monkeypatch.setitem(sys.modules, "xarray", SimpleNamespace(DataArray=labelled))
    found: Any = trace.xarray("decoder.1.cross")
    assert found.dims == ["head", "token", "key"]
    assert found.coords["key_text"] == ("key", TEXTS["encoder"][0])
    assert list(found.coords["token"]) == [0, 1, 2, 3]
    assert found.values.shape == (4, 4, 5)


def test_the_libraries_take_every_point(trace: Trace) -> None:
    """Where they are installed, which Glassformer does not need."""
    pandas, xarray = pytest.importorskip("pandas"), pytest.importorskip("xarray")
    for name in trace.names:
        table, array = trace.pandas(name), trace.xarray(name)
        assert isinstance(table, pandas.DataFrame)
        assert isinstance(array, xarray.DataArray)
        assert table["value"].to_numpy().tolist() == array.values.reshape(-1).tolist()
    weights = trace.xarray("decoder.1.cross").sel(head=3)
    assert weights.coords["key_text"].values.tolist() == TEXTS["encoder"][0]
    rows = trace.pandas("decoder.1.cross").query("head == 3 and token_text == 'end' and key_text == '.'")
    assert rows["value"].item() == float(weights[-1, -1])


@pytest.mark.parametrize("name", ["pandas", "xarray"])
def test_a_library_that_is_missing_is_named(trace: Trace, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InputError, match=rf"^this needs {name}, which is not installed: pip install {name}, or use "):
        getattr(trace, name)("logits")


def test_a_sentence_that_does_not_exist(trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=dict))
    with pytest.raises(InputError, match=r"^there is no sentence 2: the trace has 2$"):
        trace.pandas("logits", 2)


@pytest.mark.parametrize(
    "use",
    [
        lambda trace: trace.words(2),
        lambda trace: trace.plot.attention(sentence=2),
        lambda trace: trace.plot.attention(0, 0, sentence=-1),
        lambda trace: trace.plot.heads(sentence=2),
        lambda trace: trace.plot.alignment(sentence=2),
        lambda trace: trace.plot.embeddings(sentence=2),
        lambda trace: trace.plot.gates(sentence=2),
        lambda trace: sharpest(trace, sentence=2),
        lambda trace: pack(trace, sentence=2),
    ],
)
def test_so_is_one_that_is_to_be_merged_or_drawn(trace: Trace, use: Callable[[Trace], Any]) -> None:
    with pytest.raises(InputError, match=r"there is no sentence (2|-1): the trace has 2"):
        use(trace)


def test_pieces_of_words_are_summed_over_keys_and_averaged_over_tokens(trace: Trace) -> None:
    words = trace.words()
    weights, before = words["decoder.0.cross"], trace["decoder.0.cross"][0]
    assert weights.shape == (1, 4, 3, 4)
    summed = torch.stack((before[..., 0], before[..., 1] + before[..., 2], before[..., 3], before[..., 4]), dim=-1)
    by_hand = torch.stack((summed[:, 0], (summed[:, 1] + summed[:, 2]) / 2, summed[:, 3]), dim=1)
    same(weights[0], by_hand, 1e-6)
    same(weights.sum(-1), torch.ones(1, 4, 3), 1e-6)
    assert words.axes("decoder.0.cross") == {
        "head": [0, 1, 2, 3],
        "token": ["le", "chat", "end"],
        "key": ["the", "cat", "sat", "."],
    }
    same(words["encoder.0.after"][0, 1], trace["encoder.0.after"][0, 1:3].mean(0), 1e-6)
    assert words.axes("decoder.1.self")["key"] == ["start", "le", "chat"]
    assert not {name.split(".")[-1] for name in words} & {"scores", "queries", "keys", "values", "logits", "tokens"}


def test_words_of_another_sentence(trace: Trace) -> None:
    words = trace.words(1)
    same(words["decoder.0.cross"], trace["decoder.0.cross"][1:, :, :, :3], 1e-6)
    assert words.axes("encoder.0.after")["token"] == ["a", "dog", "."]


def test_words_must_be_known(trace: Trace) -> None:
    with pytest.raises(
        InputError, match=r"^this trace does not know which tokens are words: make it by run.look\(text\)$"
    ):
        trace.described(Description()).words()


def test_a_trace_says_what_it_holds(trace: Trace) -> None:
    lines = repr(trace).splitlines()
    assert lines[:3] == ["Trace of 71 points", "  the cat sat. → le chat", "  encoder.tokens 2 x 5"]
    assert lines[-1] == "  … and 63 more"
    assert len(trace) == len(list(trace)) == 71
    assert "decoder.0.cross" in trace
    assert "decoder.9.cross" not in trace
