"""The bootstrap: intervals that hold the truth, tests that find what is there and nothing else."""

import numpy as np
import pytest

from glassformer.errors import InputError
from glassformer.evaluation import class_scores, score
from glassformer.evaluation.bootstrap import draws, intervals, paired_bleu, paired_means, ratio
from glassformer.evaluation.classes import Predictions


def test_intervals_are_those_of_the_normal_law() -> None:
    values = (np.random.default_rng(0).random(400) < 0.8).astype(float)
    (found,) = paired_means([values.tolist()], samples=4000)
    spread = 1.96 * (values.mean() * (1 - values.mean()) / 400) ** 0.5
    assert found.value == values.mean()
    assert found.p is None
    assert (found.high - found.low) / 2 == pytest.approx(spread, rel=0.05)


def test_95_of_100_intervals_hold_the_truth() -> None:
    rng = np.random.default_rng(1)
    held = 0
    for _ in range(200):
        (found,) = paired_means([(rng.random(100) < 0.7).astype(float).tolist()], samples=300)
        held += found.low <= 0.7 <= found.high
    assert 180 <= held <= 199  # 190 expected, with a deviation of 3


def test_weights_make_a_mean_over_tokens() -> None:
    (found,) = paired_means([[1.0, 6.0]], [[1.0, 3.0]])
    assert found.value == 7 / 4
    assert (found.low, found.high) == (1, 2)


def test_pairs_show_what_intervals_hide() -> None:
    hard = np.random.default_rng(2).random(300)
    better = hard + 0.01 + 0.02 * np.random.default_rng(3).normal(size=300)
    first, second = paired_means([hard.tolist(), better.tolist()])
    assert second.low < first.high  # they overlap
    assert second.p is not None
    assert second.p < 0.01


def test_chance_is_called_chance() -> None:
    rng = np.random.default_rng(4)
    small = 0
    for _ in range(200):
        _, other = paired_means(rng.normal(size=(2, 60)).tolist(), samples=300)
        small += other.p is not None and other.p < 0.05
    assert 2 <= small <= 20  # 10 expected


def test_bleu_is_sacrebleus_with_its_own_test() -> None:
    references = [f"the {word} sat on the mat near the {word}" for word in ("cat", "dog", "cow", "fox") * 20]
    same = list(references)
    worse = [each.replace("on the mat", "by a mat") if row % 3 else each for row, each in enumerate(references)]
    (first, second, third), signature = paired_bleu([same, worse, same], references, samples=200)
    assert first.value == pytest.approx(100)
    assert second.value == score(worse, references).bleu
    assert second.low <= second.value <= second.high
    assert (first.p, third.p) == (None, 1.0)
    assert second.p is not None
    assert second.p < 0.05
    assert "bs:200" in signature
    assert "version:" in signature


def test_what_cannot_be_compared_is_a_sentence() -> None:
    with pytest.raises(InputError, match="nothing to compare"):
        paired_means([])
    with pytest.raises(InputError, match="nothing to compare"):
        paired_bleu([["a"], ["a", "b"]], ["a"])


def test_intervals_of_several_scores_come_from_the_same_samples() -> None:
    hits = (np.random.default_rng(5).random(500) < 0.6).astype(float)
    found = intervals({"right": ratio(hits), "wrong": ratio(1 - hits)}, 500)
    (low, high), wrong = found["right"], found["wrong"]
    assert wrong == pytest.approx((1 - high, 1 - low))
    (mean,) = paired_means([hits.tolist()])
    assert (low, high) == (mean.low, mean.high)
    assert intervals({"right": ratio([1.0])}, 1) == {}  # one example says nothing of others
    assert intervals({}, 0) == {}


def test_examples_that_do_not_count_do_not_count() -> None:
    found = intervals({"some": ratio([1.0, 0.0, 0.0], [1.0, 0.0, 0.0])}, 3)  # samples without the first have no score
    assert found == {"some": (1, 1)}
    assert intervals({"none": ratio([0.0, 0.0], [0.0, 0.0])}, 2) == {}


def test_samples_are_as_large_as_the_set_however_many_are_drawn_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    together = np.concatenate([*draws(50, 30)])
    monkeypatch.setattr("glassformer.evaluation.bootstrap.TOGETHER", 120)
    few = [*draws(50, 30)]
    assert [len(each) for each in few] == [2] * 15
    assert (np.concatenate(few) == together).all()
    assert (together.sum(axis=1) == 50).all()


def test_labels_of_a_sample_have_the_scores_of_that_sample() -> None:
    predicted, true, of = (np.array(each) for each in ([0, 1, 1, 2, 0, 2], [0, 1, 2, 2, 1, 2], [0, 0, 1, 1, 2, 3]))
    made = Predictions(predicted, true, np.arange(6.0), of, 4)
    drawn = np.array([[1, 1, 1, 1], [2, 0, 1, 1]])
    rows = [0, 1, 0, 1, 4, 5]  # of the second sample
    for name, values in {name: statistic(drawn) for name, statistic in made.statistics().items()}.items():
        for value, some in zip(values, (list(range(6)), rows), strict=True):
            scores = class_scores(predicted[some].tolist(), true[some].tolist(), 4)
            assert value == pytest.approx(np.mean(some) if name == "loss" else getattr(scores, name))
