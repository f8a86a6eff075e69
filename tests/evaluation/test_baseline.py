"""The baseline: what counting words does."""

import sys

import pytest

from glassformer.evaluation import baseline

TRAIN = [("a sweet plum", "fruit"), ("the sour apple", "fruit"), ("a heavy hammer", "tool"), ("the sharp saw", "tool")]


def test_it_learns_from_words() -> None:
    scores = baseline(TRAIN * 5, [("plum and apple", "fruit"), ("hammer and saw", "tool")], ["fruit", "tool"])
    assert scores is not None
    assert scores.accuracy == 1.0


def test_what_it_cannot_learn_from_is_no_baseline(monkeypatch: pytest.MonkeyPatch) -> None:
    assert baseline([], TRAIN, ["fruit", "tool"]) is None
    assert baseline([("!", "fruit"), ("?", "tool")], TRAIN, ["fruit", "tool"]) is None  # no words
    assert baseline(TRAIN[:2], TRAIN, ["fruit", "tool"]) is None  # one label
    monkeypatch.setattr(sys.modules["glassformer.evaluation.baseline"], "find_spec", lambda name: None)
    assert baseline(TRAIN, TRAIN, ["fruit", "tool"]) is None
