"""Parts small enough to test with, and what the tests of several parts share."""

from collections.abc import Callable

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from glassformer.parts import (
    ALiBi,
    Decoder,
    DecoderBlock,
    Embedding,
    FeedForward,
    LayerNorm,
    Mask,
    MultiHeadAttention,
    PreNorm,
    RelativeBias,
    Rotary,
    Sinusoidal,
)
from glassformer.parts.positions import AttentionPositions

WIDTH, HEADS, VOCABULARY = 8, 2, 13

seeds = st.integers(0, 2**31)

# Every way to give self-attention its positions; None: they are in the embeddings.
SCHEMES: dict[str, Callable[[], AttentionPositions | None]] = {
    "plain": lambda: None,
    "rotary": lambda: Rotary(WIDTH // HEADS, length=2),
    "relative": lambda: RelativeBias(HEADS, buckets=4, distance=6, bidirectional=False),
    "alibi": lambda: ALiBi(HEADS),
}


def randomise(module: nn.Module) -> None:
    """Numbers that hide nothing: no bias at 0, no norm weight at 1."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(std=0.5)


def same(ours: Tensor, expected: Tensor, tolerance: float = 1e-6) -> None:
    """Equal but for rounding."""
    torch.testing.assert_close(ours, expected, atol=tolerance, rtol=tolerance)


def small_decoder(scheme: str = "plain", cross: bool = True, layers: int = 2, mask: Mask | None = None) -> Decoder:
    """A decoder with random numbers everywhere, and grouped key-value heads."""

    def wrap(part: nn.Module) -> PreNorm:
        return PreNorm(part, LayerNorm(WIDTH))

    def block() -> DecoderBlock:
        attention = MultiHeadAttention(WIDTH, HEADS, key_value_heads=1, positions=SCHEMES[scheme]())
        source = wrap(MultiHeadAttention(WIDTH, HEADS)) if cross else None
        return DecoderBlock(wrap(attention), source, wrap(FeedForward(WIDTH, 12)))

    embedding = Embedding(VOCABULARY, WIDTH, positions=Sinusoidal(WIDTH, length=2) if scheme == "plain" else None)
    decoder = Decoder(embedding, [block() for _ in range(layers)], LayerNorm(WIDTH), mask)
    randomise(decoder)
    return decoder.eval()
