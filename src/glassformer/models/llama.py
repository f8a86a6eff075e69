"""Llama: the decoder alone, with RMS norms, rotary positions, gated feed-forward and shared key-value heads."""

from __future__ import annotations

from torch import nn

from glassformer.models.decoder_only import DecoderOnly
from glassformer.models.family import family
from glassformer.models.initialise import initialise
from glassformer.parts.attention import MultiHeadAttention
from glassformer.parts.blocks import Decoder, DecoderBlock
from glassformer.parts.embeddings import Embedding, Head, TiedHead
from glassformer.parts.feedforward import Activation, GatedFeedForward, Linear, silu
from glassformer.parts.norms import PreNorm, RMSNorm
from glassformer.parts.positions import Rotary


@family
def llama(
    vocabulary: int = 32_000,
    width: int = 288,
    heads: int = 6,
    layers: int = 6,
    hidden: int = 768,
    length: int = 2048,
    dropout: float = 0.0,
    *,
    key_value_heads: int | None = None,
    head_width: int | None = None,
    attention_dropout: float = 0.0,
    activation: Activation = silu,
    epsilon: float = 1e-5,
    base: float = 10_000.0,
    attention_bias: bool = False,
    feed_forward_bias: bool = False,
    tie_output: bool = False,
    linear: Linear = nn.Linear,
) -> DecoderOnly:
    """The language model of "LLaMA: Open and Efficient Foundation Language Models".

    Rotary positions know no limit: `length` is what the model was made for, not what it refuses.
    """
    head_width = width // heads if head_width is None else head_width
    rotary = Rotary(head_width, base)

    def attention() -> nn.Module:
        part = MultiHeadAttention(
            width,
            heads,
            key_value_heads=key_value_heads,
            head_width=head_width,
            bias=attention_bias,
            dropout=attention_dropout,
            positions=rotary,
            linear=linear,
        )
        return PreNorm(part, RMSNorm(width, epsilon), dropout)

    def feed_forward() -> nn.Module:
        part = GatedFeedForward(width, hidden, activation, bias=feed_forward_bias, linear=linear)
        return PreNorm(part, RMSNorm(width, epsilon), dropout)

    embedding = Embedding(vocabulary, width, dropout=dropout)
    blocks = [DecoderBlock(attention(), None, feed_forward()) for _ in range(layers)]
    decoder = Decoder(embedding, blocks, RMSNorm(width, epsilon))
    initialise(decoder)
    return DecoderOnly(decoder, TiedHead(embedding) if tie_output else Head(width, vocabulary))
