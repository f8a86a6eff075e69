"""Beam search against brute force: wide enough, it finds the very best outputs; and it never stops too early."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.decoding import Generator, Hypothesis, Limits, beam_search
from glassformer.decoding.beams import Beams, Rules
from glassformer.decoding.limits import Scorer
from glassformer.parts import pad

from .helpers import END, START, Recurrent, batches, brute_force, penalties, seeds, sentences, talker

# Wide enough to keep all there is: four candidates for each of 3³ beginnings, 36 in the last step but one.
WORDS, WIDTH, ENOUGH = [2, 3, 4], 36, 40
LIMITS = Limits(START, END, max_length=4, suppress=[token for token in range(ENOUGH) if token not in {END, *WORDS}])


def outputs(hypotheses: list[Hypothesis]) -> list[list[int]]:
    return [[*one.tokens, END] if one.finished else one.tokens for one in hypotheses]


def assert_best(model: Generator, sentence: list[int], limits: Limits, best: int, alpha: float) -> None:
    found = beam_search(model, *pad([sentence]), limits=limits, width=WIDTH, best=best, length_penalty=alpha)[0]
    expected = brute_force(model, sentence, WORDS, limits, alpha)[:best]
    assert [hypothesis.score for hypothesis in found] == pytest.approx([score for score, _ in expected], abs=1e-4)
    gaps = [one[0] - other[0] for one, other in pairwise(expected)]
    if all(gap > 1e-5 for gap in gaps):  # no near-ties, whose order rounding may choose
        assert outputs(found) == [output for _, output in expected]


@settings(max_examples=40)
@given(seeds, sentences, penalties, st.sampled_from([-2.0, 0.0, 3.0]), st.sampled_from([1, 2, 10, WIDTH]))
def test_a_wide_beam_finds_the_best_outputs_there_are_in_order(
    seed: int, sentence: list[int], alpha: float, end_bias: float, best: int
) -> None:
    model = talker(seed, vocabulary=ENOUGH, end_bias=end_bias)
    assert_best(model, sentence, LIMITS, best, alpha)


@settings(max_examples=20)
@given(seeds, sentences, penalties, st.integers(1, 4))
def test_it_does_so_with_a_least_length(seed: int, sentence: list[int], alpha: float, least: int) -> None:
    limits = Limits(START, END, max_length=4, min_length=least, suppress=LIMITS.suppress)
    assert_best(talker(seed, vocabulary=ENOUGH), sentence, limits, 5, alpha)


@settings(max_examples=20)
@given(seeds, sentences, penalties, st.sampled_from([1, 5]))
def test_it_does_so_for_a_recurrent_network(seed: int, sentence: list[int], alpha: float, best: int) -> None:
    torch.manual_seed(seed)
    assert_best(Recurrent(ENOUGH), sentence, LIMITS, best, alpha)


def only_at_a_dead_end(search: Beams, worst: torch.Tensor, highest: torch.Tensor) -> torch.Tensor:
    """A sentence is never settled while any beam can go on."""
    return highest.isneginf()


@settings(max_examples=60)
@given(seeds, batches, st.integers(1, 5), st.data(), penalties, st.sampled_from([(0.7, 3.0), (0.7, 6.0), (2.0, 10.0)]))
def test_stopping_early_never_changes_the_answer(
    seed: int, batch: list[list[int]], width: int, data: st.DataObject, alpha: float, nature: tuple[float, float]
) -> None:
    best = data.draw(st.integers(1, width))
    model = talker(seed, loud=nature[0], end_bias=nature[1])

    def search() -> list[list[Hypothesis]]:
        limits = Limits(START, END, max_length=9)
        return beam_search(model, *pad(batch), limits=limits, width=width, best=best, length_penalty=alpha)

    stopped = search()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Beams, "settled", only_at_a_dead_end)
        exhaustive = search()
    assert [outputs(hypotheses) for hypotheses in stopped] == [outputs(hypotheses) for hypotheses in exhaustive]


def settled(alpha: float, worst: float, highest: float) -> bool:
    """Whether a search stops after 2 of 7 tokens, where its worst finished output and its best beam score so."""
    scorer = Scorer(Limits(START, END, max_length=7), None, (torch.zeros(1, 1, dtype=torch.long),), greedily=False)
    search = Beams.begin(
        Rules(scorer, 2, 1, alpha, "never"), torch.zeros(1, 1, dtype=torch.long), scorer.history(0), steps=7
    )
    reach = search.penalties[1:2, 1]
    return bool(search.settled(torch.tensor([worst], dtype=torch.float64), torch.tensor([highest]) / reach))


@pytest.mark.parametrize(
    ("alpha", "bound"),
    [
        (0.0, -1.0),  # a beam only falls
        (1.0, -3.5),  # -1 / 2 tokens = -3.5 / 7: the longest output allowed
        (-1.0, -2 / 3),  # -1 * 2 tokens = -2/3 * 3: the next length
    ],
)
def test_a_sentence_is_settled_where_no_beam_can_overtake_and_not_before(alpha: float, bound: float) -> None:
    worst = -1.0 / 2**alpha
    assert settled(alpha, worst, bound - 1e-6)
    assert not settled(alpha, worst, bound + 1e-6)


def test_nothing_is_settled_before_all_outputs_that_were_asked_for_are_there() -> None:
    missing = float("-inf")
    assert not settled(0.0, missing, -100.0)
    assert settled(0.0, -2.0, -2.0)
    assert not settled(0.0, -2.0, -1.9)
    assert settled(0.0, missing, float("-inf"))
