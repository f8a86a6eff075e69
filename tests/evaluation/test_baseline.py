"""The baseline: what counting words does."""

import sys

import pytest

from glassformer.errors import ConfigurationError, InputError
from glassformer.evaluation import baseline

TRAIN = [("a sweet plum", "fruit"), ("the sour apple", "fruit"), ("a heavy hammer", "tool"), ("the sharp saw", "tool")]


def test_it_learns_from_words() -> None:
    scores = baseline(TRAIN * 5, [("plum and apple", "fruit"), ("hammer and saw", "tool")], ["fruit", "tool"])
    assert scores.accuracy == 1.0


def test_what_it_cannot_learn_from_is_no_baseline(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = ["fruit", "tool"]
    for train, test, names, complaint in (
        ([], TRAIN, labels, "no training texts"),
        (TRAIN, [], labels, "no test texts"),
        ([("!", "fruit"), ("?", "tool")], TRAIN, labels, "no text has a word, or all texts have the same label"),
        (TRAIN[:2], TRAIN, labels, "no text has a word, or all texts have the same label"),
        ([*TRAIN, ("saw", "tooL")], TRAIN, labels, "'tooL' is no label of the model"),
        (TRAIN, TRAIN, [*labels, *map(str, range(199))], "too long with 201 labels: the maximum is 200"),
    ):
        with pytest.raises(InputError, match=complaint):
            baseline(train, test, names)
    monkeypatch.setattr(sys.modules["glassformer.evaluation.baseline"], "find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"needs scikit-learn: pip install 'glassformer\[tasks\]'"):
        baseline(TRAIN, TRAIN, labels)
