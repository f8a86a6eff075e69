"""Bad numbers and bad input: a typed error, in one sentence that says what was found and what was expected."""

import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from glassformer.errors import ConfigurationError, GlassformerError, InputError
from glassformer.models import transformer
from glassformer.parts import (
    ALiBi,
    Embedding,
    FeedForward,
    GatedFeedForward,
    Head,
    LayerNorm,
    Learned,
    MultiHeadAttention,
    PostNorm,
    PreNorm,
    RelativeBias,
    RMSNorm,
    Rotary,
    Sinusoidal,
)
from glassformer.parts.checks import check_keep, check_tokens, readable

from .helpers import small_decoder

WRONG_NUMBERS: dict[str, Callable[[], object]] = {
    "width 10 does not divide into 4 heads: change one of them, or give head_width": lambda: MultiHeadAttention(10, 4),
    "4 heads do not divide into groups for 3 key-value heads": lambda: MultiHeadAttention(8, 4, key_value_heads=3),
    "heads must be at least 1, not 0": lambda: MultiHeadAttention(8, 0),
    "width must be at least 1, not -8": lambda: MultiHeadAttention(-8, 2),
    "key_value_heads must be at least 1, not 0": lambda: MultiHeadAttention(8, 2, key_value_heads=0),
    "head_width must be at least 1, not 0": lambda: MultiHeadAttention(8, 2, head_width=0),
    "memory_width must be at least 1, not -1": lambda: MultiHeadAttention(8, 2, memory_width=-1),
    "dropout must be at least 0 and below 1, not 1.0": lambda: MultiHeadAttention(8, 2, dropout=1.0),
    "dropout must be at least 0 and below 1, not -0.1": lambda: FeedForward(8, 8, dropout=-0.1),
    "dropout must be at least 0 and below 1, not 1.5": lambda: GatedFeedForward(8, 8, dropout=1.5),
    "dropout must be at least 0 and below 1, not nan": lambda: PreNorm(LayerNorm(2), LayerNorm(2), float("nan")),
    "dropout must be at least 0 and below 1, not 2": lambda: PostNorm(LayerNorm(2), LayerNorm(2), 2),
    "dropout must be at least 0 and below 1, not 3": lambda: Embedding(5, 4, dropout=3),
    "hidden must be at least 1, not 0": lambda: FeedForward(8, 0),
    "hidden must be at least 1, not -1": lambda: GatedFeedForward(8, -1),
    "vocabulary must be at least 1, not 0": lambda: Embedding(0, 4),
    "vocabulary must be at least 1, not -1": lambda: Head(4, -1),
    "width must be at least 1, not 0": lambda: LayerNorm(0),
    "width must be at least 1, not -1": lambda: RMSNorm(-1),
    "width must be at least 1, not -2": lambda: RMSNorm(-2),
    "length must be at least 1, not 0": lambda: Learned(0, 4),
    "sinusoidal positions need an even width, not 5": lambda: Sinusoidal(5),
    "rotary positions need an even head width, not 3": lambda: Rotary(3),
    "heads must be at least 1, not -1": lambda: ALiBi(-1),
    "3 buckets do not fit distances up to 128": lambda: RelativeBias(2, buckets=3),
    "32 buckets do not fit distances up to 8": lambda: RelativeBias(2, distance=8),
    "skip must be at least 0, not -1": lambda: Learned(4, 4, skip=-1),
    "rotary positions were built for head width 4, not 6": lambda: MultiHeadAttention(12, 2, positions=Rotary(4)),
    "RelativeBias was built for 1 heads, not 2": lambda: MultiHeadAttention(8, 2, positions=RelativeBias(1)),
    "ALiBi was built for 4 heads, not 2": lambda: MultiHeadAttention(8, 2, positions=ALiBi(4)),
    "layers must be at least 1, not 0": lambda: transformer(5, width=8, heads=2, layers=0),
}


@pytest.mark.parametrize("message", WRONG_NUMBERS)
def test_numbers_that_make_no_part_are_refused(message: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{re.escape(message)}$"):
        WRONG_NUMBERS[message]()


def ids(*shape: int) -> Tensor:
    return torch.zeros(shape, dtype=torch.long)


def keep(*rows: str) -> Tensor:
    return torch.tensor([[mark == "x" for mark in row] for row in rows])


WRONG_INPUTS: dict[str, Callable[[], object]] = {
    "tokens holds the id 5, but the vocabulary has the ids 0 to 4": lambda: Embedding(5, 4)(ids(1, 2) + 5),
    "tokens holds the id -1, but the vocabulary has the ids 0 to 4": lambda: Embedding(5, 4)(ids(1, 2) - 1),
    "tokens must have the shape (batch, length), not (3,)": lambda: Embedding(5, 4)(ids(3)),
    "tokens must have the shape (batch, length), not (1, 2, 3)": lambda: Embedding(5, 4)(ids(1, 2, 3)),
    "tokens is an empty batch: it has no sentence": lambda: Embedding(5, 4)(ids(0, 3)),
    "tokens is empty: every sentence needs at least one token": lambda: Embedding(5, 4)(ids(2, 0)),
    "tokens must hold whole numbers (token ids), not torch.float32": lambda: Embedding(5, 4)(torch.zeros(1, 2)),
    "tokens must hold whole numbers (token ids), not torch.bool": lambda: Embedding(5, 4)(ids(1, 2).bool()),
    "the input has vectors of width 6, but this part was built for width 8": lambda: MultiHeadAttention(8, 2)(
        torch.zeros(1, 2, 6)
    ),
    "the memory has vectors of width 8, but this part was built for width 6": lambda: MultiHeadAttention(
        8, 2, memory_width=6
    )(torch.zeros(1, 2, 8), torch.zeros(1, 3, 8)),
    "a token stands at position -1: positions count from 0": lambda: Sinusoidal(4)(torch.zeros(1, 2, 4), -1),
    "the memory has 3 sentences, but the input has 2": lambda: MultiHeadAttention(8, 2)(
        torch.zeros(2, 1, 8), torch.zeros(3, 1, 8)
    ),
    "position 7 is beyond the learned table, which has positions 0 to 3": lambda: Embedding(
        5, 4, positions=Learned(4, 4)
    )(ids(1, 8)),
    "position 4 is beyond the learned table, which has positions 0 to 3": lambda: Embedding(
        5, 4, positions=Learned(4, 4)
    )(ids(1, 1), 4),
    "sentence 1 of the batch is padding only: it has no token to read": lambda: check_keep(keep("x.", ".."), ids(2, 2)),
    "source_mask must be boolean (True = a real token), not torch.int64": lambda: check_keep(ids(1, 2), ids(1, 2)),
    "source_mask has the shape (1, 2), but its tokens have (1, 3)": lambda: check_keep(keep("xx"), ids(1, 3)),
    "labels holds the id 9, but the vocabulary has the ids 0 to 6": lambda: check_tokens(ids(1, 1) + 9, 7, "labels"),
}


@pytest.mark.parametrize("message", WRONG_INPUTS)
def test_data_that_a_part_cannot_read_is_refused(message: str) -> None:
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        WRONG_INPUTS[message]()


MODEL = transformer(5, width=8, heads=2, layers=1, hidden=8)
WRONG_SOURCES: dict[str, Callable[[], object]] = {
    "the source holds the id 5, but the vocabulary has the ids 0 to 4": lambda: MODEL.start(ids(1, 2) + 5),
    "the source is an empty batch: it has no sentence": lambda: MODEL.start(ids(0, 2)),
    "the source is empty: every sentence needs at least one token": lambda: MODEL.start(ids(1, 0)),
    "the source must hold whole numbers (token ids), not torch.float32": lambda: MODEL.start(torch.zeros(1, 2)),
    "sentence 0 of the batch is padding only: it has no token to read": lambda: MODEL.start(ids(1, 2), keep("..")),
    "sentence 2 of the batch is padding only: it has no token to read": lambda: MODEL(
        ids(3, 2), ids(3, 1), keep("xx", "x.", "..")
    ),
}


@pytest.mark.parametrize("message", WRONG_SOURCES)
def test_a_source_that_a_model_cannot_read_is_refused(message: str) -> None:
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        WRONG_SOURCES[message]()


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32, torch.int64])
def test_whole_numbers_of_any_size_are_token_ids(dtype: torch.dtype) -> None:
    embedding = Embedding(5, 4)
    assert torch.equal(embedding(torch.tensor([[4]], dtype=dtype)), embedding.weight[None, 4:])


@pytest.mark.parametrize("kind", [ConfigurationError, InputError])
def test_an_error_on_purpose_is_also_a_value_error(kind: type[Exception]) -> None:
    assert issubclass(kind, GlassformerError)
    assert issubclass(kind, ValueError)


def test_a_refused_token_leaves_the_decoder_usable() -> None:
    decoder = small_decoder(cross=False)
    with pytest.raises(InputError):
        decoder(ids(1, 2) - 1)
    assert decoder(ids(1, 2)).isfinite().all()


def test_values_elsewhere_are_looked_at_only_when_asked() -> None:
    elsewhere = torch.zeros(1, 2, device="meta")
    assert readable(torch.zeros(1))
    assert not readable(elsewhere)
    assert not readable(elsewhere, anywhere=True)  # there are no values on this device
    check_tokens(elsewhere.long(), 5)  # what cannot be looked at is not refused
