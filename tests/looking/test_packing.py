"""A packed trace holds what the trace holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import glassformer as gf
from glassformer.errors import InputError
from glassformer.looking import analyses, answer, packing
from glassformer.looking.packing import First, answer_of, pack
from glassformer.looking.plots.choosing import name
from glassformer.looking.trace import Trace
from glassformer.models import gpt2
from glassformer.tasks.translation import Translator

from .test_plots import cross


def unpacked(data: bytes) -> tuple[dict[str, Any], NDArray[Any]]:
    """The header, and the weights of all heads in one line."""
    found = answer.unpacked(data)
    whole = [
        each.reshape(-1) / np.iinfo(each.dtype).max
        for name, each in found.arrays.items()
        if not name.endswith("rollout")
    ]
    return found.header, np.concatenate(whole)


def flat(trace: Trace) -> NDArray[Any]:
    return torch.cat([trace.attention(kind)[:, 0].reshape(-1) for kind in trace.kinds]).float().numpy()


@pytest.fixture(scope="module")
def look(trained: Translator) -> Trace:
    return trained.look("a b c d")


def test_weights_come_by_pieces_and_by_words(look: Trace) -> None:
    header, weights = unpacked(pack(look))
    np.testing.assert_allclose(weights, np.concatenate([flat(look), flat(look.words())]), atol=1 / 65535)
    for reading, trace in (("pieces", look), ("words", look.words())):
        for kind in header["readings"][reading]:
            scores = analyses.entropy(trace, kind["name"]).values.flatten().tolist()
            assert [head["entropy"] for head in kind["heads"]] == pytest.approx(scores, abs=1e-4)
    assert header["first"]["kind"] == "decoder.cross"
    assert (header["input"], header["output"]) == (look.input, look.output)


def test_many_weights_take_a_byte_each(look: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "LARGE", 10)
    assert {each.dtype for each in answer_of(look).arrays.values()} == {np.dtype("u1")}
    _, weights = unpacked(pack(look))
    np.testing.assert_allclose(weights, np.concatenate([flat(look), flat(look.words())]), atol=1 / 255)


def test_candidates_are_the_likeliest_tokens_of_each_step_and_the_one_that_was_written(look: Trace) -> None:
    header, _ = unpacked(pack(look))
    names = look.axes("logits")["vocabulary"]
    for step, some in enumerate(look["logits"][0].softmax(dim=-1)):
        found = header["candidates"][step]
        assert [each["probability"] for each in found[:5]] == pytest.approx(some.topk(5).values.tolist(), abs=1e-5)
        assert found[0]["text"] == name(names[int(some.argmax())])
    written = look.about.tokens["written"][0]
    for found, text in zip(header["candidates"][: len(written) - 1], written, strict=False):
        assert [each["text"] for each in found if each["chosen"]] == [name(text)]
    steps = {kind["name"]: kind["steps"] for kind in header["readings"]["words"]}
    assert steps["decoder.cross"] == look.about.words["written"][0]
    assert steps["encoder.self"] is None  # the logits are of what is written


def test_what_a_trace_does_not_have_is_left_out_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    header, _ = unpacked(pack(cross()))  # without a run: no words, no logits
    assert list(header["readings"]) == ["pieces"]
    assert header["candidates"] == []
    assert header["first"]["words"] is False
    with pytest.raises(InputError, match="there is no head 7"):
        pack(cross(), First(layer=0, head=7))
    monkeypatch.setattr(packing, "MOST", 2)
    with pytest.raises(InputError, match="the interactive view has room for 2: take a shorter text"):
        pack(cross())


def test_a_model_that_only_writes_has_candidates_for_what_comes_next() -> None:
    torch.manual_seed(0)
    model = gpt2(20, width=8, heads=2, layers=1).eval()
    with gf.record(model) as trace:
        model(torch.tensor([[3, 4, 5]]))
    header, _ = unpacked(pack(trace))
    (kind,) = header["readings"]["pieces"]
    assert (kind["name"], kind["rows"], kind["steps"]) == ("decoder.self", ["3", "4", "5"], [[0], [1], [2]])
    assert [each["text"] for each in header["candidates"][0] if each["chosen"]] == ["4"]
