"""Greedy decoding: the most likely token at each step, whatever the company."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from glassformer.decoding import Limits, greedy
from glassformer.looking import record
from glassformer.models import EncoderDecoder
from glassformer.parts import DecodingState, pad

from .helpers import END, START, VOCABULARY, ByHand, batches, lines, log_probabilities, seeds, sentences, talker

LIMITS = Limits(START, END, max_length=10)


def uncached(model: EncoderDecoder, sentence: list[int], limits: Limits) -> tuple[list[int], list[float]]:
    """Greedy decoding as one would first write it: read the whole output again for each token."""
    output, scores = [limits.start or 0], []
    for _ in range(limits.max_length):
        with torch.no_grad():
            last = model(torch.tensor([sentence]), torch.tensor([output]))[0, -1].log_softmax(dim=-1)
        output.append(int(last.argmax()))
        scores.append(last.max().item())
        if output[-1] == limits.end:
            break
    return output[1:], scores


@settings(max_examples=60)
@given(seeds, batches)
def test_cached_decoding_equals_reading_everything_again_at_each_step(seed: int, batch: list[list[int]]) -> None:
    model = talker(seed)
    for sentence, found in zip(batch, greedy(model, *pad(batch), limits=LIMITS), strict=True):
        tokens, scores = uncached(model, sentence, LIMITS)
        assert [*found.tokens, END][: len(tokens)] == tokens
        assert found.finished == (tokens[-1] == END)
        assert found.log_probabilities == pytest.approx(scores, abs=1e-5, rel=1e-5)


@settings(max_examples=60)
@given(seeds, batches, st.integers(0, 5), st.data())
def test_batch_mates_their_order_and_padding_change_nothing(
    seed: int, batch: list[list[int]], more: int, data: st.DataObject
) -> None:
    model = talker(seed)
    source, mask = pad([*batch, [2] * (6 + more)])  # one long mate: the others are padded
    order = data.draw(st.permutations(range(len(source))), "order")
    together = greedy(model, source[order], mask[order], limits=LIMITS)
    for place, row in enumerate(order):
        if row < len(batch):
            alone = greedy(model, torch.tensor([batch[row]]), limits=LIMITS)[0]
            assert together[place].tokens == alone.tokens
            assert together[place].finished == alone.finished
            assert together[place].log_probabilities == pytest.approx(alone.log_probabilities, abs=1e-5, rel=1e-5)


@settings(max_examples=60)
@given(seeds, sentences)
def test_scores_are_the_models_own_log_probabilities(seed: int, sentence: list[int]) -> None:
    model = talker(seed)
    found = greedy(model, torch.tensor([sentence]), limits=LIMITS)[0]
    output = [*found.tokens, END] if found.finished else found.tokens
    assert found.log_probabilities == pytest.approx(log_probabilities(model, sentence, output), abs=1e-5, rel=1e-5)
    assert found.log_probability == pytest.approx(sum(found.log_probabilities), abs=1e-9)
    assert found.score == found.log_probability


def test_a_causal_mask_is_not_inverted_while_decoding() -> None:
    """Regression, from a popular tutorial: each new token attends to all tokens before it and itself, none else."""
    model = talker(3, end_bias=-100.0)
    with record(model) as trace:
        greedy(model, torch.tensor([[2, 3, 4]]), limits=Limits(START, END, max_length=5))
    weights = trace["decoder.0.self"][0]  # (H, T, S)
    assert weights.shape[1:] == (5, 5)
    assert (weights.tril() > 0).equal(torch.ones_like(weights).tril() > 0)
    assert weights.triu(diagonal=1).eq(0).all()


class Counting:
    """A model that notes how many sentences each step has."""

    def __init__(self, model: EncoderDecoder) -> None:
        self.model, self.sizes = model, list[int]()

    def start(self, *inputs: Tensor) -> DecodingState:
        return self.model.start(*inputs)

    def step(self, state: DecodingState, tokens: Tensor) -> tuple[Tensor, DecodingState]:
        self.sizes.append(len(tokens))
        return self.model.step(state, tokens)


def test_a_sentence_that_has_ended_costs_nothing_any_more() -> None:
    model = Counting(talker(5))
    found = greedy(model, *pad([[token, token + 1] for token in range(2, 22)]), limits=LIMITS)
    lengths = [len(hypothesis.log_probabilities) for hypothesis in found]
    assert len(set(lengths)) > 2
    assert model.sizes == [sum(length > step for length in lengths) for step in range(max(lengths))]


def test_the_likeliest_token_wins_by_hand() -> None:
    model = ByHand({(): [0, 0.4, 0.6, 0], (2,): [0, 0.1, 0.2, 0.7], (2, 3): [0.1, 0.9, 0, 0]}, [0.25] * 4)
    found = greedy(model, lines(), limits=LIMITS)[0]
    assert found.tokens == [2, 3]
    assert found.finished
    assert found.log_probabilities == pytest.approx([math.log(0.6), math.log(0.7), math.log(0.9)])
    assert found.log_probability == pytest.approx(math.log(0.6 * 0.7 * 0.9))


def test_an_output_that_is_cut_off_says_so() -> None:
    model = ByHand({}, [0, 0.1, 0.9, 0])
    found = greedy(model, lines(2), limits=Limits(START, END, max_length=3))
    assert [hypothesis.tokens for hypothesis in found] == [[2, 2, 2], [2, 2, 2]]
    assert not any(hypothesis.finished for hypothesis in found)
    assert found[0].log_probability == pytest.approx(3 * math.log(0.9))


def test_decoding_keeps_no_graph_and_asks_for_no_gradient() -> None:
    model = talker(1)
    greedy(model, torch.tensor([[2, 3]]), limits=LIMITS)
    assert all(parameter.grad is None for parameter in model.parameters())
    model(torch.tensor([[2, 3]]), torch.tensor([[START]])).sum().backward()  # and training goes on afterwards
    assert len(model.decoder.embedding.weight) == VOCABULARY
