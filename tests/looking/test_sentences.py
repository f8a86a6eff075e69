"""Traces of several texts as one, and each text of it again."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import glassformer as gf
from glassformer.errors import InputError
from glassformer.looking.sentences import joined, sentence_of


def test_texts_of_different_lengths_are_joined_and_parted_again(tmp_path: Path) -> None:
    run = gf.load("en-de")
    texts = ["Where is the old station?", "Good morning."]
    traces = [run.look(text, keep="weights") for text in texts]
    names = [name for name in traces[0].names if name.endswith(".weights")]
    whole = gf.load_trace(joined(traces, names, torch.float16).save(tmp_path / "x.trace"))
    for number, trace in enumerate(traces):
        one = sentence_of(whole, number)
        assert (one.input, one.output) == (trace.input, trace.output)
        ours, theirs = one.words(), trace.words()
        for name in names:
            assert ours[name].shape == theirs[name].shape
            assert torch.allclose(ours[name], theirs[name], atol=2e-3)
            assert ours.axes(name) == theirs.axes(name)
        figure = one.plot.attention(1, 2)
        shown = figure.axes[0].images[0].get_array()
        assert shown is not None
        assert shown.shape == tuple(trace["decoder.1.cross"].shape[2:])  # padding is not drawn
    with pytest.raises(InputError, match="there is no text 2: the trace has 2"):
        sentence_of(whole, 2)
