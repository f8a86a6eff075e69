"""Limits: lengths, forbidden tokens and forced beginnings, for every way to decode."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.decoding import Generator, Hypothesis, Limits, beam_search, greedy, sample, stream
from glassformer.decoding.limits import Scorer
from glassformer.errors import ConfigurationError, GlassformerError, InputError, NonFiniteError
from glassformer.parts import pad

from .helpers import END, START, VOCABULARY, ByHand, lines, log_probabilities, seeds, talker

SENTENCES = [[2, 3, 4], [5], [6, 7]]
Decode = Callable[..., list[Hypothesis]]


def with_beams(model: Generator, *inputs: Any, **options: Any) -> list[Hypothesis]:
    return [best[0] for best in beam_search(model, *inputs, width=3, **options)]


every_way = pytest.mark.parametrize("decode", [greedy, with_beams, sample])


@every_way
@settings(max_examples=25)
@given(seed=seeds, longest=st.integers(1, 7), data=st.data())
def test_lengths_stay_within_their_limits(decode: Decode, seed: int, longest: int, data: st.DataObject) -> None:
    least = data.draw(st.integers(0, longest))
    limits = Limits(START, END, max_length=longest, min_length=least)
    for found in decode(talker(seed, end_bias=6.0), *pad(SENTENCES), limits=limits):
        assert len(found.tokens) >= least
        assert len(found.log_probabilities) == len(found.tokens) + found.finished <= longest
        assert found.finished or len(found.tokens) == longest
        assert END not in found.tokens


@every_way
def test_without_a_least_length_these_models_do_end_at_once(decode: Decode) -> None:
    """The limit above is not idle."""
    found = decode(talker(1, end_bias=60.0), *pad(SENTENCES), limits=Limits(START, END))
    assert [(one.tokens, one.finished) for one in found] == [([], True)] * 3


@every_way
@settings(max_examples=25)
@given(seed=seeds, suppress=st.sets(st.integers(0, VOCABULARY - 1), max_size=VOCABULARY - 2))
def test_suppressed_tokens_are_never_written(decode: Decode, seed: int, suppress: set[int]) -> None:
    limits = Limits(START, END, max_length=5, suppress=sorted(suppress))
    for found in decode(talker(seed), *pad(SENTENCES), limits=limits):
        assert not suppress & {*found.tokens, *([END] if found.finished else [])}
        assert all(score > -torch.inf for score in found.log_probabilities)


@every_way
@settings(max_examples=25)
@given(
    seed=seeds,
    prefix=st.lists(st.lists(st.integers(2, VOCABULARY - 1), max_size=4), min_size=3, max_size=3),
)
def test_an_output_begins_with_its_own_forced_beginning(decode: Decode, seed: int, prefix: list[list[int]]) -> None:
    model, limits = talker(seed), Limits(START, END, max_length=7)
    together = decode(model, *pad(SENTENCES), limits=limits, prefix=prefix)
    for sentence, beginning, found in zip(SENTENCES, prefix, together, strict=True):
        assert found.tokens[: len(beginning)] == beginning
        output = [*found.tokens, END] if found.finished else found.tokens
        assert found.log_probabilities == pytest.approx(log_probabilities(model, sentence, output), abs=1e-4)


@settings(max_examples=25)
@given(seed=seeds, row=st.integers(0, 2), kept=st.integers(0, 6))
def test_greedy_goes_on_from_its_own_beginning_as_before(seed: int, row: int, kept: int) -> None:
    model, limits = talker(seed), Limits(START, END, max_length=7)
    found = greedy(model, *pad(SENTENCES), limits=limits)
    prefix: list[list[int]] = [[], [], []]
    prefix[row] = found[row].tokens[:kept]
    again = greedy(model, *pad(SENTENCES), limits=limits, prefix=prefix)
    assert [one.tokens for one in again] == [one.tokens for one in found]


@every_way
def test_a_forced_beginning_may_hold_suppressed_tokens_and_fill_all_there_is(decode: Decode) -> None:
    limits = Limits(START, END, max_length=2, suppress=[9])
    found = decode(talker(1), *pad([[2]]), limits=limits, prefix=[[9, 9]])[0]
    assert (found.tokens, found.finished) == ([9, 9], False)


@every_way
def test_a_forced_beginning_that_the_model_rules_out_is_written_or_refused_in_a_sentence(decode: Decode) -> None:
    """It has probability 0, so no other token may take its place."""
    with contextlib.suppress(GlassformerError):
        found = decode(ByHand({}, [0, 0.5, 0.5, 0]), lines(), limits=Limits(START, END, max_length=3), prefix=[[3]])
        assert found[0].tokens[:1] == [3]


@every_way
@pytest.mark.parametrize(
    ("prefix", "sentence"),
    [
        ([[2], [3]], r"there are 2 prefixes for 3 sentences: expected one each \(it may be empty\)"),
        ([], "there are 0 prefixes for 3 sentences"),
        ([[2], [3, END], []], "a prefix contains the end token 1: no token can follow it"),
        ([[2], [], [3, 4, 5, 6, 7]], "a prefix of 5 tokens does not fit into max_length 4"),
        ([[2], [], [VOCABULARY]], "a prefix has the id 32, but the vocabulary has the ids 0 to 31"),
        ([[2], [], [-1]], "a prefix has the id -1, but the vocabulary has the ids 0 to 31"),
    ],
)
def test_a_beginning_that_cannot_be_is_refused_in_a_sentence(
    decode: Decode, prefix: list[list[int]], sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        decode(talker(1), *pad(SENTENCES), limits=Limits(START, END, max_length=4), prefix=prefix)


@every_way
@pytest.mark.parametrize(
    ("limits", "sentence"),
    [
        (Limits(START, VOCABULARY), "the end token 32 is not in the vocabulary, which has the ids 0 to 31"),
        (Limits(START, -1), "the end token -1 is not in the vocabulary, which has the ids 0 to 31"),
        (
            Limits(START, END, suppress=[2, 99]),
            "the suppress token 99 is not in the vocabulary, which has the ids 0 to 31",
        ),
        (Limits(START, END, suppress=range(VOCABULARY)), "every token of the vocabulary is suppressed"),
        (
            Limits(START, END, min_length=1, suppress=[token for token in range(VOCABULARY) if token != END]),
            "every token of the vocabulary is suppressed",
        ),
    ],
)
def test_limits_that_no_model_can_keep_are_refused_in_a_sentence(decode: Decode, limits: Limits, sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        decode(talker(1), *pad(SENTENCES), limits=limits)


@every_way
@pytest.mark.parametrize("start", [VOCABULARY, -1])
def test_a_start_that_the_model_does_not_have_is_refused_in_a_sentence(decode: Decode, start: int) -> None:
    with pytest.raises(GlassformerError, match=rf"{start}\b.* ids 0 to 31"):  # by the model, or else by the limits
        decode(talker(1), *pad(SENTENCES), limits=Limits(start, END))
    with pytest.raises(
        ConfigurationError, match=f"the start token {start} is not in the vocabulary, which has the ids 0 to 3"
    ):
        decode(ByHand({}, [0.25] * 4), lines(), limits=Limits(start, END))


@pytest.mark.parametrize(
    ("lengths", "sentence"),
    [
        ((0, 0), "max_length must be at least 1, not 0"),
        ((-5, 0), "max_length must be at least 1, not -5"),
        ((4, 5), r"min_length must be from 0 to max_length \(4\), not 5"),
        ((4, -1), r"min_length must be from 0 to max_length \(4\), not -1"),
    ],
)
def test_lengths_that_no_output_has_are_refused_in_a_sentence(lengths: Sequence[int], sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        Limits(START, END, max_length=lengths[0], min_length=lengths[1])


@every_way
def test_only_the_end_may_be_written_and_is(decode: Decode) -> None:
    limits = Limits(START, END, suppress=[token for token in range(VOCABULARY) if token != END])
    found = decode(talker(1), *pad(SENTENCES), limits=limits)
    assert [(one.tokens, one.finished) for one in found] == [([], True)] * 3


@given(seeds, st.integers(0, 4), st.sets(st.integers(2, 9), max_size=7))
def test_what_may_come_keeps_the_models_log_probability_and_the_rest_has_none(
    seed: int, length: int, suppress: set[int]
) -> None:
    torch.manual_seed(seed)
    logits = torch.randn(2, 3, 10) * 4
    before = logits.clone()
    limits = Limits(START, END, max_length=9, min_length=2, suppress=sorted(suppress))
    written = torch.full((2, 3, length), 2)
    scores = Scorer(limits, [[], [7, 7]], [lines(2)], greedily=True)(logits, written, [0, 1])
    plain = logits.log_softmax(dim=-1)
    forbidden = suppress | ({END} if length < 2 else set())
    for token in range(10):
        first = torch.full((3,), -torch.inf) if token in forbidden else plain[0, :, token]
        torch.testing.assert_close(scores[0, :, token], first)
        if length < 2:
            second = plain[1, :, token] if token == 7 else torch.full((3,), -torch.inf)
            torch.testing.assert_close(scores[1, :, token], second)
    assert torch.equal(logits, before)  # the model's own numbers are not written over


NOTHING = range(VOCABULARY)  # with this suppressed
BUT_END = [token for token in range(VOCABULARY) if token != END]


@every_way
def test_a_forced_beginning_that_fills_all_there_is_needs_no_other_token(decode: Decode) -> None:
    limits = Limits(START, END, max_length=2, suppress=NOTHING)
    found = decode(talker(1), *pad([[2], [3]]), limits=limits, prefix=[[9, 8], [7, 6]])
    assert [(one.tokens, one.finished) for one in found] == [([9, 8], False), ([7, 6], False)]
    with pytest.raises(ConfigurationError, match="every token of the vocabulary is suppressed"):
        decode(talker(1), *pad([[2], [3]]), limits=limits, prefix=[[9, 8], [7]])  # the second would have to go on


@every_way
def test_after_a_forced_beginning_of_the_least_length_the_end_alone_may_be_left(decode: Decode) -> None:
    limits = Limits(START, END, max_length=4, min_length=2, suppress=BUT_END)
    found = decode(talker(1), *pad([[2]]), limits=limits, prefix=[[9, 8]])[0]
    assert (found.tokens, found.finished) == ([9, 8], True)
    with pytest.raises(ConfigurationError, match="every token of the vocabulary is suppressed"):
        decode(talker(1), *pad([[2]]), limits=limits, prefix=[[9]])


@every_way
def test_a_forced_beginning_may_be_a_tensor(decode: Decode) -> None:
    limits, prefix = Limits(START, END, max_length=6), [[9, 8], [7, 6], [5, 4]]
    expected = [one.tokens for one in decode(talker(1), *pad(SENTENCES), limits=limits, prefix=prefix)]
    assert [tokens[:2] for tokens in expected] == prefix
    for tensors in (torch.tensor(prefix), [torch.tensor(tokens) for tokens in prefix]):
        assert [one.tokens for one in decode(talker(1), *pad(SENTENCES), limits=limits, prefix=tensors)] == expected


@every_way
@pytest.mark.parametrize("prefix", [[2, 3, 4], torch.tensor([2, 3, 4]), torch.ones(3, 2), [["a"], ["b"], ["c"]]])
def test_a_beginning_of_something_else_is_refused_in_a_sentence(decode: Decode, prefix: Any) -> None:
    with pytest.raises(InputError, match="a prefix must be a list or tensor of token ids for each sentence"):
        decode(talker(1), *pad(SENTENCES), limits=Limits(START, END), prefix=prefix)


@pytest.mark.parametrize("decode", [greedy, sample, beam_search, lambda *inputs, **how: list(stream(*inputs, **how))])
@pytest.mark.parametrize(("inputs", "found"), [((), "there are none"), (([[2, 3]],), "the first one is a list")])
def test_decoding_nothing_is_refused_in_a_sentence(decode: Decode, inputs: tuple[Any, ...], found: str) -> None:
    with pytest.raises(InputError, match=f"needs the model's inputs as tensors, the source first, but {found}"):
        decode(talker(1), *inputs, limits=Limits(START, END))


# --- what depends on the history


def banned_by_hand(history: list[int], limits: Limits) -> set[int]:
    """The tokens that must not follow, found by looking at each place of the history."""
    size, found = limits.no_repeat_ngram, set()
    if size:
        last = history[len(history) - size + 1 :]
        found |= {
            history[at + size - 1] for at in range(len(history) - size + 1) if history[at : at + size - 1] == last
        }
    for *begin, end in limits.suppress_sequences:
        if len(begin) <= len(history) and history[len(history) - len(begin) :] == begin:
            found.add(end)
    return found


tokens = st.integers(0, 4)


@settings(max_examples=150)
@given(
    prompts=st.lists(st.lists(tokens, min_size=1, max_size=6), min_size=1, max_size=3),
    written=st.lists(tokens, max_size=6),
    size=st.integers(0, 4),
    sequences=st.lists(st.lists(tokens, min_size=1, max_size=3), max_size=4),
)
def test_what_the_history_forbids_is_what_a_look_at_each_place_finds(
    prompts: list[list[int]], written: list[int], size: int, sequences: list[list[int]]
) -> None:
    """Whatever the lengths of the other prompts."""
    limits = Limits(None, 5, max_length=99, no_repeat_ngram=size, suppress_sequences=sequences)
    score = Scorer(limits, None, pad(prompts), greedily=True)
    so_far = torch.tensor(written, dtype=torch.long).expand(len(prompts), 2, -1)
    scores = score(torch.zeros(len(prompts), 2, 6), so_far, range(len(prompts)))
    for row, prompt in enumerate(prompts):
        for beam in range(2):
            assert {*scores[row, beam].isneginf().nonzero()[:, 0].tolist()} == banned_by_hand(prompt + written, limits)
    last = len(prompts) - 1  # the others have ended
    assert torch.equal(score(torch.zeros(1, 2, 6), so_far[:1], [last])[0], scores[last])


@every_way
def test_any_of_several_end_tokens_ends_an_output(decode: Decode) -> None:
    model = ByHand({(): [0, 0, 1, 0], (2,): [0, 0, 0, 1]}, [0, 1, 0, 0])
    found = decode(model, lines(), limits=Limits(START, [END, 3], max_length=6))[0]
    assert (found.tokens, found.finished, len(found.log_probabilities)) == ([2], True, 2)
    found = decode(model, lines(), limits=Limits(START, END, max_length=6))[0]
    assert (found.tokens, found.finished) == ([2, 3], True)
    with pytest.raises(InputError, match="probability 0"):
        decode(model, lines(), limits=Limits(START, [END, 3], max_length=6, min_length=2))


@every_way
def test_forced_tokens_are_certain(decode: Decode) -> None:
    limits = Limits(START, END, max_length=4, forced_first=9, forced_last=END)
    for found in decode(talker(1, end_bias=-50.0), *pad(SENTENCES), limits=limits):
        assert (len(found.tokens), found.tokens[0], found.finished) == (3, 9, True)
        assert found.log_probabilities[0] == found.log_probabilities[-1] == 0.0
    free = Limits(None, END, max_length=4, forced_first=9)
    scores = Scorer(free, None, pad([[3], [3, 4]]), greedily=True)(torch.zeros(2, 1, 12), torch.zeros(2, 1, 0), [0, 1])
    assert scores[0, 0].isfinite().tolist() == [token == 9 for token in range(12)]
    assert scores[1, 0].isfinite().all()  # as in `transformers`, it follows one token only


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"no_repeat_ngram": -1}, "no_repeat_ngram must be at least 0, not -1"),
        ({"repetition_penalty": 0.0}, "repetition_penalty must be above 0, not 0.0"),
        ({"end": ()}, "there must be at least one end token"),
        ({"suppress_sequences": [[]]}, "suppress_sequences has an empty sequence"),
    ],
)
def test_rules_that_cannot_be_are_refused_in_a_sentence(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        Limits(**{"start": START, "end": END, **options})


# --- outputs that are not finite


@every_way
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("step", [0, 2, 3])
def test_outputs_that_are_not_finite_are_refused_in_a_sentence(decode: Decode, value: float, step: int) -> None:
    class Broken:
        """A model one of whose logits is not finite at a step, for the second sentence."""

        steps = 0

        def start(self, source: Any) -> Any:
            return ByHand({}, []).start(source)

        def step(self, state: Any, tokens: Any) -> tuple[Any, Any]:
            logits = torch.zeros(*tokens.shape, 6)
            logits[..., END] = -50.0
            if self.steps == step:
                logits[1, :, 3] = value
            self.steps += 1
            return logits, ByHand({}, [1 / 6] * 6).step(state, tokens)[1]

    with pytest.raises(NonFiniteError, match=r"sentence 1: the model's outputs are not finite numbers: .* train\.lr"):
        decode(Broken(), lines(2), limits=Limits(START, END, max_length=4))
