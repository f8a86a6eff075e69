"""Streaming: tokens as they come, and a model that is left as it was."""

import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

from glassformer.decoding import Limits, Sampler, Written, beam_search, greedy, sample, stream
from glassformer.models import EncoderDecoder
from glassformer.parts import DecodingState, pad

from .helpers import END, START, batches, seeds, talker

LIMITS = Limits(START, END, max_length=8)
INPUTS = pad([[2, 3, 4], [5], [6, 7]])


@settings(max_examples=40)
@given(seeds, batches)
def test_a_stream_tells_what_greedy_gives(seed: int, batch: list[list[int]]) -> None:
    model = talker(seed)
    tokens: list[list[int]] = [[] for _ in batch]
    scores: list[list[float]] = [[] for _ in batch]
    for event in stream(model, *pad(batch), limits=LIMITS):
        tokens[event.sentence].append(event.token)
        scores[event.sentence].append(event.log_probability)
    for written, each, found in zip(tokens, scores, greedy(model, *pad(batch), limits=LIMITS), strict=True):
        assert written == found.tokens + [END] * found.finished
        assert each == found.log_probabilities


def test_a_stream_with_a_sampler_tells_what_sampling_gives() -> None:
    model = talker(2)
    tokens: list[list[int]] = [[], [], []]
    for event in stream(model, *INPUTS, limits=LIMITS, choose=Sampler(temperature=2.0, seed=5)):
        tokens[event.sentence].append(event.token)
    found = sample(model, *INPUTS, limits=LIMITS, temperature=2.0, seed=5)
    assert tokens == [one.tokens + [END] * one.finished for one in found]


class Stepping:
    """A model that counts its steps."""

    def __init__(self, model: EncoderDecoder) -> None:
        self.model, self.steps = model, 0

    def start(self, *inputs: Tensor) -> DecodingState:
        return self.model.start(*inputs)

    def step(self, state: DecodingState, tokens: Tensor) -> tuple[Tensor, DecodingState]:
        self.steps += 1
        return self.model.step(state, tokens)


def test_each_token_comes_before_the_next_one_is_computed() -> None:
    model = Stepping(talker(2, end_bias=-50.0))
    for position, event in enumerate(stream(model, torch.tensor([[2, 3]]), limits=LIMITS), start=1):
        assert isinstance(event, Written)
        assert model.steps == position


def test_between_two_tokens_the_model_is_in_training_if_it_was() -> None:
    model = talker(2, end_bias=-50.0, dropout=0.5).train()
    for _ in stream(model, *INPUTS, limits=LIMITS):
        assert all(part.training for part in model.modules())
        break
    assert all(part.training for part in model.modules())


def test_two_streams_of_one_model_do_not_disturb_each_other() -> None:
    model = talker(2, end_bias=-50.0, dropout=0.5).train()
    one, other = (stream(model, *INPUTS, limits=LIMITS) for _ in range(2))
    first = [next(one), next(other)]
    one.close()  # type: ignore[attr-defined]
    expected = list(stream(model.eval(), *INPUTS, limits=LIMITS))
    model.train()
    assert [first[1], *other] == expected


def test_between_two_tokens_gradients_are_as_the_caller_left_them() -> None:
    model = talker(2, end_bias=-50.0)
    for _ in stream(model, torch.tensor([[2, 3]]), limits=LIMITS):
        assert torch.is_grad_enabled()
        assert not torch.is_inference_mode_enabled()


def test_an_error_midway_leaves_the_model_in_training() -> None:
    model = talker(2).train()
    for decode in (greedy, sample, beam_search):
        with pytest.raises(ValueError, match="prefix"):
            decode(model, *INPUTS, limits=LIMITS, prefix=[[2], [3], [99]])
        assert model.training


def test_a_model_in_training_decodes_without_dropout_and_goes_on_training() -> None:
    model = talker(2, dropout=0.5)
    for decode in (greedy, sample, beam_search):
        calm = decode(model.eval(), *INPUTS, limits=LIMITS)
        assert not model.training
        assert decode(model.train(), *INPUTS, limits=LIMITS) == calm
        assert all(part.training for part in model.modules())


def test_a_part_that_was_frozen_stays_frozen() -> None:
    """Fine-tuning with a frozen encoder: decoding in between must not wake its dropout."""
    model = talker(2, dropout=0.5).train()
    model.encoder.eval()
    greedy(model, *INPUTS, limits=LIMITS)
    assert model.decoder.training
    assert not any(part.training for part in model.encoder.modules())
