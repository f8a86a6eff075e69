"""A decoder with a sliding window decodes as it reads: cached and uncached are the same."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.decoding import Hypothesis, Limits, beam_search, greedy
from glassformer.models import EncoderDecoder
from glassformer.parts import Decoder, pad, window

from .helpers import END, START, batches, log_probabilities, seeds, talker

LIMITS = Limits(START, END, max_length=10)

sizes = st.integers(1, 4)


def short_sighted(seed: int, size: int) -> EncoderDecoder:
    """A model whose decoder sees the last few of its own words only."""
    model = talker(seed, end_bias=0.0)
    decoder = model.decoder
    model.decoder = Decoder(decoder.embedding, decoder.blocks, decoder.norm, window(size))  # type: ignore[arg-type]
    return model.eval()


def check(model: EncoderDecoder, sentence: list[int], found: Hypothesis) -> None:
    """What was found while stepping has the score that reading it all at once gives it."""
    output = [*found.tokens, END] if found.finished else found.tokens
    expected = log_probabilities(model, sentence, output)
    assert found.log_probabilities == pytest.approx(expected, abs=1e-5, rel=1e-5)


@settings(max_examples=40)
@given(seeds, batches, sizes)
def test_greedy_with_a_window_is_reading_everything_again_at_each_step(
    seed: int, batch: list[list[int]], size: int
) -> None:
    model = short_sighted(seed, size)
    for sentence, found in zip(batch, greedy(model, *pad(batch), limits=LIMITS), strict=True):
        check(model, sentence, found)
        written = [START]
        for token in found.tokens:
            with torch.no_grad():
                assert model(torch.tensor([sentence]), torch.tensor([written]))[0, -1].argmax() == token
            written.append(token)


@settings(max_examples=40)
@given(seeds, batches, sizes, st.integers(2, 5))
def test_beams_with_a_window_score_as_the_model_that_reads_all_at_once(
    seed: int, batch: list[list[int]], size: int, width: int
) -> None:
    model = short_sighted(seed, size)
    found = beam_search(model, *pad(batch), limits=LIMITS, width=width, best=width)
    for sentence, hypotheses in zip(batch, found, strict=True):
        for hypothesis in hypotheses:
            check(model, sentence, hypothesis)


def test_the_window_is_not_idle() -> None:
    wide, narrow = (greedy(short_sighted(3, size), torch.tensor([[2, 3, 4]]), limits=LIMITS)[0] for size in (99, 2))
    assert not math.isclose(wide.log_probability, narrow.log_probability, abs_tol=1e-3)
