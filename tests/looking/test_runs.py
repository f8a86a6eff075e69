"""Runs: what is recorded around their commands is what really decodes, and changes reach it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import glassformer as gf
from glassformer.errors import InputError
from glassformer.looking.sharpest import sharpest
from glassformer.parts.observing import Observable

from .families import same

TEXT, OUTPUT = "The old gardener lives here.", "Der alte Gärtner lebt hier."


@pytest.fixture(scope="module")
def run() -> Any:
    return gf.load("en-de")


def observed(run: Any) -> bool:
    copy = run.decoding_model()
    return any(
        part.observe is not None for part in (*run.model.modules(), *copy.modules()) if isinstance(part, Observable)
    )


def test_a_look_follows_the_search(run: Any) -> None:
    trace = run.look(TEXT)
    assert (trace.input, trace.output) == (TEXT, OUTPUT)
    assert trace.axes("decoder.0.cross")["token"][:6] == ["Der", "▁alte", "▁G", "är", "t", "ner"]
    assert trace.axes("decoder.0.self")["token"][:2] == ["start", "Der"]
    assert len(trace.beams) == 1
    assert trace.names == gf.points(run)
    forced = run.forced(TEXT)
    with torch.inference_mode(), gf.record(run) as again:
        run.model(*forced.inputs)
    for name in again:
        ours, expected = trace[name], again[name]
        same(
            ours.tril() if name.endswith("self.scores") and "decoder" in name else ours,
            expected.tril() if name.endswith("self.scores") and "decoder" in name else expected,
            1e-4,
        )


def test_words_are_aligned_by_the_sharpest_head(run: Any) -> None:
    words = run.look(TEXT, keep="weights").words()
    best = sharpest(words)
    assert best.rows == ["Der", "alte", "Gärtner", "lebt", "hier", ".", "end"]
    read = {row: best.columns[int(weights.argmax())] for row, weights in zip(best.rows, best.weights, strict=True)}
    assert (read["alte"], read["Gärtner"], read["hier"]) == ("old", "gardener", "here")


@pytest.mark.parametrize("int8", [False, True])
def test_what_decodes_is_recorded_also_packed_and_in_8_bits(run: Any, int8: bool) -> None:
    before = run.translate([TEXT], int8=int8)[0]
    with gf.record(run, keep="decoder.*.cross") as trace:
        assert run.translate([TEXT], int8=int8)[0] == before
    assert trace["decoder.2.cross"].shape == (1, 5, len(before.ids) + 1, 7)
    assert not observed(run)


def test_a_batch_is_recorded_in_the_order_of_its_decoding(run: Any) -> None:
    with gf.record(run, keep="decoder.0.cross") as trace:
        run.translate([TEXT, "Good morning."])
    assert trace["decoder.0.cross"].shape[0] == 2


def test_changes_reach_what_decodes(run: Any) -> None:
    with gf.intervene(run) as edit:
        edit.attend("decoder.*.cross", key=1, query=[0, 1])
        assert run.translate([TEXT])[0].text != OUTPUT
    assert run.translate([TEXT])[0].text == OUTPUT
    assert not observed(run)


def test_beams_and_what_is_kept_can_be_chosen(run: Any) -> None:
    trace = run.look(TEXT, keep="weights", layers=2, heads=0, beam=1)
    assert trace.beams == []
    assert trace.attention("decoder.cross").shape[:3] == (1, 1, 1)
    with pytest.raises(InputError, match=r"^there is no layer 99: "):
        run.look(TEXT, layers=99)


def test_a_look_takes_as_much_memory_as_it_may(run: Any) -> None:
    with pytest.raises(InputError, match=r"may take 1e-06: take a shorter text"):
        run.look(TEXT, keep="weights", beam=1, gigabytes=1e-6)
    assert len(run.look(TEXT, keep="weights", beam=1, gigabytes=1e-3)) > 2


@pytest.mark.parametrize("text", ["", "  "])
def test_nothing_to_look_at(run: Any, text: str) -> None:
    with pytest.raises(InputError, match=rf"^there is nothing to look at in '{text}'$"):
        run.look(text)


def test_a_text_of_two_thousand_tokens_is_cut_as_in_training(run: Any, tmp_path: Path) -> None:
    trace = run.look("house " * 2000, keep="decoder.0.cross", beam=1)
    assert trace["decoder.0.cross"].shape[-1] == len(run.read("house " * 2000)) < 2000
    assert gf.load_trace(trace.save(tmp_path / "long.trace")).names == trace.names
