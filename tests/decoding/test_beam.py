"""Beam search: right scores, nothing lost, the same in any company."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.decoding import Hypothesis, Limits, beam_search, greedy
from glassformer.errors import ConfigurationError
from glassformer.parts import pad

from .helpers import END, START, VOCABULARY, ByHand, batches, lines, log_probabilities, penalties, seeds, talker

LIMITS = Limits(START, END, max_length=9)


def written(hypothesis: Hypothesis) -> list[int]:
    """The tokens of an output, the end included where it was reached."""
    return [*hypothesis.tokens, END] if hypothesis.finished else hypothesis.tokens


@settings(max_examples=50)
@given(seeds, batches, st.integers(1, 5), penalties)
def test_every_score_is_the_models_log_probability_under_the_length_penalty(
    seed: int, batch: list[list[int]], width: int, alpha: float
) -> None:
    model = talker(seed)
    found = beam_search(model, *pad(batch), limits=LIMITS, width=width, best=width, length_penalty=alpha)
    for sentence, hypotheses in zip(batch, found, strict=True):
        for hypothesis in hypotheses:
            output = written(hypothesis)
            assert hypothesis.log_probabilities == pytest.approx(log_probabilities(model, sentence, output), abs=1e-4)
            assert hypothesis.log_probability == pytest.approx(sum(hypothesis.log_probabilities), abs=1e-4)
            assert hypothesis.score == pytest.approx(hypothesis.log_probability / len(output) ** alpha, abs=1e-6)
            assert len(output) <= LIMITS.max_length
            assert hypothesis.finished or len(output) == LIMITS.max_length


@settings(max_examples=50)
@given(seeds, batches, st.integers(1, 5), penalties, st.data())
def test_batch_mates_their_order_and_padding_change_nothing(
    seed: int, batch: list[list[int]], width: int, alpha: float, data: st.DataObject
) -> None:
    model = talker(seed)
    source, mask = pad([*batch, [2] * 9])
    order = data.draw(st.permutations(range(len(source))), "order")
    options = {"limits": LIMITS, "width": width, "best": width, "length_penalty": alpha}
    together = beam_search(model, source[order], mask[order], **options)  # type: ignore[arg-type]
    for place, row in enumerate(order):
        if row < len(batch):
            alone = beam_search(model, torch.tensor([batch[row]]), **options)[0]  # type: ignore[arg-type]
            assert [written(one) for one in together[place]] == [written(one) for one in alone]
            assert [one.score for one in together[place]] == pytest.approx(
                [one.score for one in alone], abs=1e-5, rel=1e-5
            )


@settings(max_examples=50)
@given(seeds, batches, st.integers(2, 5), penalties)
def test_outputs_are_different_and_best_first(seed: int, batch: list[list[int]], width: int, alpha: float) -> None:
    for hypotheses in beam_search(
        talker(seed), *pad(batch), limits=LIMITS, width=width, best=width, length_penalty=alpha
    ):
        assert len(hypotheses) == width
        assert len({tuple(written(hypothesis)) for hypothesis in hypotheses}) == width
        scores = [hypothesis.score for hypothesis in hypotheses]
        assert scores == sorted(scores, reverse=True)


@settings(max_examples=50)
@given(seeds, batches, st.sampled_from([0.0, -0.5, -1.0]))
def test_one_beam_is_greedy_where_the_penalty_does_not_favour_length(
    seed: int, batch: list[list[int]], alpha: float
) -> None:
    """The likeliest end is finished, and nothing after it can score higher: α ≤ 0 is exactly when this must hold."""
    model, inputs = talker(seed), pad(batch)
    searched = beam_search(model, *inputs, limits=LIMITS, width=1, length_penalty=alpha)
    for one, other in zip(searched, greedy(model, *inputs, limits=LIMITS), strict=True):
        assert written(one[0]) == written(other)
        assert one[0].log_probability == pytest.approx(other.log_probability, abs=1e-5, rel=1e-5)


@settings(max_examples=50)
@given(seeds, batches, st.sampled_from([0.6, 1.0, 2.0]))
def test_one_beam_never_scores_below_greedy_where_the_penalty_favours_length(
    seed: int, batch: list[list[int]], alpha: float
) -> None:
    """It meets greedy's output on its way, and gives it up only for a better one that goes on after the end."""
    model, inputs = talker(seed), pad(batch)
    searched = beam_search(model, *inputs, limits=LIMITS, width=1, length_penalty=alpha)
    for one, other in zip(searched, greedy(model, *inputs, limits=LIMITS), strict=True):
        assert one[0].score >= other.log_probability / len(written(other)) ** alpha - 1e-5
        assert len(written(one[0])) >= len(written(other))


# After "a" comes "b", mostly; an output may end at once, or be "a", or "a b". Tokens: 1 end, 2 "a", 3 "b".
TWO_WAYS = {
    (): [0, 0.4, 0.6, 0],
    (2,): [0, 0.3, 0, 0.7],
    (2, 3): [0, 0.5, 0.5, 0],
}
AT_ONCE = math.log(0.4)
LONGER = math.log(0.6 * 0.7 * 0.5)


@pytest.mark.parametrize("shift", [0.0, 40.0, -40.0])
@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_a_finished_output_is_kept_and_wins_where_it_is_likelier(width: int, shift: float) -> None:
    """Regression, from a popular tutorial: summing raw logits (see `shift`), and dropping what has finished."""
    model = ByHand(TWO_WAYS, [0, 1, 0, 0], shift)
    limits = Limits(START, END, max_length=6)
    found = beam_search(model, lines(), limits=limits, width=width, length_penalty=0.0)[0][0]
    # one beam goes on with "a": the end is not among the one best
    assert found.tokens == ([2, 3] if width == 1 else [])
    assert found.score == pytest.approx(LONGER if width == 1 else AT_ONCE, abs=1e-4)


@pytest.mark.parametrize("shift", [0.0, 40.0, -40.0])
@pytest.mark.parametrize("width", [2, 3, 4])
def test_a_longer_output_overtakes_a_finished_one_where_the_penalty_says_so(width: int, shift: float) -> None:
    model = ByHand(TWO_WAYS, [0, 1, 0, 0], shift)
    limits = Limits(START, END, max_length=6)
    found = beam_search(model, lines(), limits=limits, width=width, best=2, length_penalty=1.0)[0]
    assert [hypothesis.tokens for hypothesis in found] in ([[2, 3], [2, 3, 2]], [[2, 3, 2], [2, 3]])
    assert max(hypothesis.score for hypothesis in found) == found[0].score > AT_ONCE / 1
    assert {round(hypothesis.score, 4) for hypothesis in found} == {round(LONGER / 3, 4), round(LONGER / 4, 4)}


def test_an_output_that_is_cut_off_competes_like_the_others() -> None:
    model = ByHand({(): [0, 0.05, 0.95, 0]}, [0, 0.01, 0.99, 0])
    limits = Limits(START, END, max_length=2)
    found = beam_search(model, lines(), limits=limits, width=2, best=2, length_penalty=0.0)[0]
    assert [(one.tokens, one.finished) for one in found] == [([2, 2], False), ([], True)]
    assert found[0].score == pytest.approx(math.log(0.95 * 0.99), abs=1e-5, rel=1e-5)


def test_more_outputs_are_asked_for_than_there_are() -> None:
    model = ByHand({(): [0, 0.5, 0.5, 0]}, [0, 1, 0, 0])
    found = beam_search(model, lines(), limits=LIMITS, width=4, best=4)[0]
    assert sorted(hypothesis.tokens for hypothesis in found) == [[], [2]]


def test_a_beam_as_wide_as_the_vocabulary_works_and_a_wider_one_is_refused() -> None:
    model = talker(2)
    source = torch.tensor([[3, 4]])
    limits = Limits(START, END, max_length=3)
    assert len(beam_search(model, source, limits=limits, width=VOCABULARY, best=VOCABULARY)[0]) == VOCABULARY
    with pytest.raises(ConfigurationError, match="the beam width 33 is above the vocabulary size 32"):
        beam_search(model, source, limits=limits, width=VOCABULARY + 1)


@pytest.mark.parametrize(
    ("width", "best", "sentence"),
    [
        (0, 1, "the beam width must be at least 1, not 0"),
        (-3, 1, "the beam width must be at least 1, not -3"),
        (4, 5, r"the number of outputs must be from 1 to the beam width \(4\), not 5"),
        (4, 0, r"the number of outputs must be from 1 to the beam width \(4\), not 0"),
    ],
)
def test_a_beam_that_cannot_be_is_refused_in_a_sentence(width: int, best: int, sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        beam_search(talker(2), torch.tensor([[3, 4]]), limits=LIMITS, width=width, best=best)


def test_a_prefix_that_only_dead_beams_cannot_take_is_taken() -> None:
    model = ByHand({(): [0.0, 0.1, 0.8, 0.1], (2,): [0.0, 0.0, 0.0, 1.0]}, [0.0, 0.5, 0.5, 0.0])
    found = beam_search(model, lines(), limits=Limits(0, 1, max_length=3), width=2, prefix=[[2, 3]])
    assert found[0][0].tokens[:2] == [2, 3]


@pytest.mark.parametrize("penalty", [math.nan, math.inf, -math.inf, 1000.0, -400.0])
def test_a_length_penalty_that_is_no_sane_number_is_refused(penalty: float) -> None:
    with pytest.raises(ConfigurationError, match="from -10 to 10"):
        beam_search(talker(1), torch.tensor([[5]]), limits=Limits(START, END), length_penalty=penalty)
