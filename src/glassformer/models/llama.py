"""Llama: the decoder alone, with RMS norms, rotary positions, gated feed-forward and shared key-value heads."""

from __future__ import annotations

from dataclasses import replace

from glassformer.errors import ConfigurationError
from glassformer.models.family import family
from glassformer.models.initialise import initialise
from glassformer.models.shapes import DecoderOnly
from glassformer.parts.builder import BlockBuilder
from glassformer.parts.embeddings import Embedding, Head, TiedHead
from glassformer.parts.feedforward import Activation, silu
from glassformer.parts.linear import Linear, MakeLinear
from glassformer.parts.norms import Norm, PreNorm, Residual, RMSNorm
from glassformer.parts.schemes import Positions, rotary

ANGLES = 10_000.0  # the base of rotary angles in the paper


@family(answers=["next"])
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
    gated: bool = True,
    norm: Norm = RMSNorm,
    residual: Residual = PreNorm,
    positions: Positions = rotary,
    epsilon: float = 1e-5,
    base: float = ANGLES,
    attention_bias: bool = False,
    feed_forward_bias: bool = False,
    tie_output: bool = False,
    linear: MakeLinear = Linear,
) -> DecoderOnly:
    """The language model of "LLaMA: Open and Efficient Foundation Language Models".

    Rotary positions know no limit: `length` is what the model was made for, not what it refuses.
    """
    if positions is not rotary and base != ANGLES:
        raise ConfigurationError(f"base = {base:g} has no effect: it is for rotary positions only")
    head_width = width // heads if head_width is None else head_width
    blocks = BlockBuilder(width, heads, hidden, dropout, attention_dropout, key_value_heads, head_width, linear=linear)
    blocks = replace(blocks, attention_bias=attention_bias, feed_forward_bias=feed_forward_bias)
    blocks = replace(blocks, residual=residual, norm=norm, epsilon=epsilon, activation=activation, gated=gated)
    sizes = blocks.sizes(length, base=base)
    embedding = Embedding(vocabulary, width, positions=positions.embedding(sizes), dropout=dropout)
    decoder = blocks.decoder(embedding, layers, positions.attention(sizes, False))
    initialise(decoder)
    return DecoderOnly(decoder, TiedHead(embedding) if tie_output else Head(width, vocabulary))
