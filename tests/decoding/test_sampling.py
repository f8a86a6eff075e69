"""Sampling: the right tokens with the right frequencies, and the same ones again from the same seed."""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.decoding import Limits, Sampler, greedy, sample
from glassformer.errors import ConfigurationError, InputError
from glassformer.parts import pad

from .helpers import END, START, VOCABULARY, ByHand, batches, lines, log_probabilities, seeds, sentences, talker

LIMITS = Limits(START, END, max_length=8)
CHANCES = [0.05, 0.15, 0.3, 0.5]
ONE_TOKEN = Limits(START, END, max_length=1)
DRAWS = 3000


def drawn(chances: list[float], **options: Any) -> list[float]:
    """How often each token is drawn, as shares of many draws."""
    outputs = sample(ByHand({}, chances), lines(DRAWS), limits=ONE_TOKEN, **options)
    counts = Counter(END if output.finished else output.tokens[0] for output in outputs)
    return [counts[token] / DRAWS for token in range(len(chances))]


def assert_distribution(shares: list[float], expected: list[float]) -> None:
    """Pearson's chi-square, at a level that a right sampler exceeds once in ten thousand seeds."""
    possible = [(share, chance) for share, chance in zip(shares, expected, strict=True) if chance > 0]
    assert sum(share for share, _ in possible) == pytest.approx(1.0)
    assert DRAWS * sum((share - chance) ** 2 / chance for share, chance in possible) < 21.1  # 3 degrees of freedom


@pytest.mark.parametrize("seed", [0, 1_000_000])
def test_tokens_are_drawn_by_their_probabilities(seed: int) -> None:
    assert_distribution(drawn(CHANCES, seed=seed), CHANCES)


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_temperature_raises_probabilities_to_its_inverse(temperature: float) -> None:
    raised = [chance ** (1 / temperature) for chance in CHANCES]
    assert_distribution(drawn(CHANCES, temperature=temperature), [each / sum(raised) for each in raised])


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"top_k": 2}, [0, 0, 0.375, 0.625]),
        ({"top_p": 0.6}, [0, 0, 0.375, 0.625]),
        ({"min_p": 0.2}, [0, 3 / 19, 6 / 19, 10 / 19]),
        ({"top_k": 3, "top_p": 0.8}, [0, 0, 0.375, 0.625]),  # of 10/19, 6/19, 3/19 the first two reach 0.8
    ],
)
def test_what_is_left_out_is_never_drawn_and_the_rest_keeps_its_proportions(
    options: dict[str, Any], expected: list[float]
) -> None:
    assert_distribution(drawn(CHANCES, **options), expected)


def kept(chances: list[float], **options: Any) -> set[int]:
    probabilities, tokens = Sampler(**options).likely(torch.tensor([chances]).log())
    assert probabilities.sum().item() == pytest.approx(1.0, abs=1e-6)
    return {token for token, chance in zip(tokens[0].tolist(), probabilities[0].tolist(), strict=True) if chance > 0}


FIVE = [0.03, 0.5, 0.07, 0.25, 0.15]  # in order: tokens 1, 3, 4, 2, 0


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {0, 1, 2, 3, 4}),
        ({"top_k": 1}, {1}),
        ({"top_k": 3}, {1, 3, 4}),
        ({"top_k": 99}, {0, 1, 2, 3, 4}),
        ({"top_p": 1e-9}, {1}),  # the likeliest always stays
        ({"top_p": 0.45}, {1}),
        ({"top_p": 0.7}, {1, 3}),
        ({"top_p": 0.8}, {1, 3, 4}),
        ({"top_p": 1.0}, {0, 1, 2, 3, 4}),
        ({"min_p": 0.0}, {0, 1, 2, 3, 4}),
        ({"min_p": 0.2}, {1, 3, 4}),
        ({"min_p": 0.4}, {1, 3}),
        ({"min_p": 1.0}, {1}),
        ({"top_k": 2, "top_p": 0.9}, {1, 3}),
        ({"top_k": 2, "top_p": 0.6}, {1}),  # of 2/3 and 1/3
        ({"top_p": 0.8, "min_p": 0.4}, {1, 3}),
        ({"temperature": 0.5, "top_p": 0.9}, {1, 3}),  # squares: 0.2500, 0.0625 of 0.3408
        ({"temperature": 4.0, "min_p": 0.6}, {1, 2, 3, 4}),  # fourth roots: 0.84, 0.51, 0.71, 0.62 but 0.41… of 0.84
    ],
)
def test_the_tokens_that_may_be_drawn_are_those_worked_out_by_hand(options: dict[str, Any], expected: set[int]) -> None:
    assert kept(FIVE, **options) == expected


def test_top_p_of_one_leaves_nothing_out_of_a_large_vocabulary() -> None:
    scores = (3 * torch.randn(1, 50_000)).log_softmax(dim=-1)
    probabilities, _ = Sampler(top_p=1.0).likely(scores)
    assert (probabilities > 0).all()


@settings(max_examples=50)
@given(
    seeds,
    batches,
    st.sampled_from([0.5, 1.0, 1.5]),
    st.sampled_from([None, 5]),
    st.sampled_from([None, 0.9]),
    st.data(),
)
def test_batch_mates_their_order_and_padding_change_nothing(
    seed: int, batch: list[list[int]], temperature: float, top_k: int | None, top_p: float | None, data: st.DataObject
) -> None:
    model = talker(seed)
    source, mask = pad([*batch, [2] * 9])
    options: dict[str, Any] = {"limits": LIMITS, "temperature": temperature, "top_k": top_k, "top_p": top_p}
    own = [seed + 17 * row for row in range(len(source))]
    order = data.draw(st.permutations(range(len(source))), "order")
    together = sample(model, source[order], mask[order], seed=[own[row] for row in order], **options)
    for place, row in enumerate(order):
        if row < len(batch):
            alone = sample(model, torch.tensor([batch[row]]), seed=[own[row]], **options)[0]
            assert together[place].tokens == alone.tokens
            assert together[place].log_probabilities == pytest.approx(alone.log_probabilities, abs=1e-5, rel=1e-5)


def test_one_seed_gives_each_sentence_random_numbers_of_its_own() -> None:
    draws = {(seed, place): tuple(Sampler(seed=seed).ahead(place, 3)) for seed in (-1, 0, 1, 2) for place in range(3)}
    assert len(set(draws.values())) == len(draws)


def test_a_model_that_allows_nothing_is_a_sentence() -> None:
    model = ByHand({}, [0.0, 0.0, 1.0, 0.0])
    with pytest.raises(InputError, match="sentence 0: every allowed next token has probability 0"):
        sample(model, lines(), limits=Limits(0, 1, max_length=3, suppress=[2]))


def test_the_same_seed_draws_the_same_and_another_draws_another() -> None:
    model, inputs = talker(4, end_bias=0.0), pad([[2, 3], [4]])
    first, again, other = (sample(model, *inputs, limits=LIMITS, temperature=3.0, seed=seed) for seed in (1, 1, 50))
    assert first == again
    assert [one.tokens for one in first] != [one.tokens for one in other]


def test_drawing_leaves_torchs_own_random_numbers_alone() -> None:
    model, inputs = talker(4), pad([[2, 3]])
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    sample(model, *inputs, limits=LIMITS)
    assert torch.equal(torch.rand(3), expected)


@settings(max_examples=40)
@given(seeds, sentences, st.sampled_from([0.7, 2.0]))
def test_scores_are_the_models_own_log_probabilities_whatever_the_temperature(
    seed: int, sentence: list[int], temperature: float
) -> None:
    model = talker(seed)
    found = sample(model, torch.tensor([sentence]), limits=LIMITS, temperature=temperature, top_k=9, seed=seed)[0]
    output = [*found.tokens, END] if found.finished else found.tokens
    assert found.log_probabilities == pytest.approx(log_probabilities(model, sentence, output), abs=1e-5, rel=1e-5)
    assert found.score == found.log_probability == pytest.approx(math.fsum(found.log_probabilities), abs=1e-5, rel=1e-5)


@pytest.mark.parametrize("options", [{"top_k": 1}, {"top_p": 1e-6}, {"min_p": 1.0}, {"temperature": 1e-6}])
def test_sampling_from_one_token_is_greedy(options: dict[str, Any]) -> None:
    model, inputs = talker(8), pad([[2, 3], [4], [5, 6, 7]])
    tokens = [one.tokens for one in sample(model, *inputs, limits=LIMITS, **options)]
    assert tokens == [one.tokens for one in greedy(model, *inputs, limits=LIMITS)]


@settings(max_examples=30)
@given(seeds)
def test_what_is_suppressed_is_never_drawn_even_when_wild(seed: int) -> None:
    suppress = [token for token in range(VOCABULARY) if token not in (END, 5, 6)]
    limits = Limits(START, END, max_length=6, suppress=suppress)
    for found in sample(talker(seed), *pad([[2], [3]]), limits=limits, temperature=100.0, seed=seed):
        assert set(found.tokens) <= {5, 6}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"temperature": 0.0},
            "temperature must be above 0, not 0.0: use greedy decoding for an output without randomness",
        ),
        ({"temperature": -1.0}, "temperature must be above 0, not -1.0"),
        ({"temperature": math.nan}, "temperature must be above 0, not nan"),
        ({"top_k": 0}, "top_k must be at least 1, not 0"),
        ({"top_p": 0.0}, "top_p must be above 0 and at most 1, not 0.0"),
        ({"top_p": 1.1}, "top_p must be above 0 and at most 1, not 1.1"),
        ({"min_p": -0.1}, "min_p must be from 0 to 1, not -0.1"),
        ({"min_p": 1.1}, "min_p must be from 0 to 1, not 1.1"),
    ],
)
def test_options_that_make_no_distribution_are_refused_in_a_sentence(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        sample(ByHand({}, CHANCES), lines(), limits=LIMITS, **options)


@pytest.mark.parametrize("temperature", [1e-40, 1e30, math.inf])
def test_an_extreme_temperature_draws_what_it_may_or_is_refused_in_a_sentence(temperature: float) -> None:
    with contextlib.suppress(ConfigurationError):
        tokens = Sampler(temperature)(torch.tensor([[0.3, 0.0, 0.7]]).log(), [0]).tolist()
        assert tokens[0] in ({2} if temperature < 1 else {0, 2})


def test_fewer_seeds_than_sentences_are_refused_in_a_sentence() -> None:
    with pytest.raises(InputError, match="there are 2 seeds, but there is a sentence 2"):
        sample(ByHand({}, CHANCES), lines(3), limits=LIMITS, seed=[1, 2])
