"""The Transformer of "Attention Is All You Need": an encoder and a decoder made of attention and little else.

D model width, H heads, V vocabulary
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch import nn

from glassformer.errors import ConfigurationError
from glassformer.models.encoder_decoder import EncoderDecoder
from glassformer.models.family import family
from glassformer.models.initialise import initialise
from glassformer.parts.attention import MultiHeadAttention
from glassformer.parts.blocks import Decoder, DecoderBlock, Encoder, EncoderBlock
from glassformer.parts.checks import check_positive
from glassformer.parts.embeddings import Embedding, Head, TiedHead
from glassformer.parts.feedforward import Activation, FeedForward, Linear, relu
from glassformer.parts.norms import LayerNorm, Placement, PostNorm, PreNorm
from glassformer.parts.positions import AttentionPositions, EmbeddingPositions, NoPositions, Sinusoidal


@family
def transformer(
    vocabulary: int,
    width: int = 512,
    heads: int = 8,
    layers: int = 6,
    hidden: int = 2048,
    dropout: float = 0.1,
    *,
    decoder_layers: int | None = None,
    target_vocabulary: int | None = None,
    residual: Placement = PreNorm,
    norm: Callable[[int], nn.Module] = LayerNorm,
    positions: EmbeddingPositions | None = None,
    attention_positions: AttentionPositions | None = None,
    activation: Activation = relu,
    linear: Linear = nn.Linear,
    attention_dropout: float = 0.0,
    tie_source: bool = True,
    tie_output: bool = True,
) -> EncoderDecoder:
    """The encoder-decoder of "Attention Is All You Need".

    `tie_source`: source and target share one embedding. `tie_output`: the head scores tokens by the target's
    embedding. `positions` are added to the embeddings, sinusoidal unless told otherwise; `attention_positions` (rotary,
    ALiBi) work in all self-attentions instead, or as well. Dropout stands where the paper has it: on the
    embeddings and on what each part adds to the residual stream.
    """
    check_positive(layers=layers, decoder_layers=layers if decoder_layers is None else decoder_layers)
    target_vocabulary = vocabulary if target_vocabulary is None else target_vocabulary
    if tie_source and target_vocabulary != vocabulary:
        raise ConfigurationError(
            f"source and target cannot share an embedding: their vocabularies have {vocabulary} and "
            f"{target_vocabulary} tokens; pass tie_source=False"
        )
    if positions is None:
        positions = Sinusoidal(width) if attention_positions is None else NoPositions()

    def embed(vocabulary: int) -> Embedding:
        return Embedding(vocabulary, width, scale=math.sqrt(width), positions=positions, dropout=dropout)

    def attention(positions: AttentionPositions | None = attention_positions) -> nn.Module:
        part = MultiHeadAttention(width, heads, dropout=attention_dropout, positions=positions, linear=linear)
        return residual(part, norm(width), dropout)

    def feed_forward() -> nn.Module:
        return residual(FeedForward(width, hidden, activation, linear=linear), norm(width), dropout)

    def final_norm() -> nn.Module | None:
        return norm(width) if residual.final_norm else None

    source = embed(vocabulary)
    target = source if tie_source else embed(target_vocabulary)
    encoder_blocks = [EncoderBlock(attention(), feed_forward()) for _ in range(layers)]
    decoder_blocks = [
        DecoderBlock(attention(), attention(None), feed_forward()) for _ in range(decoder_layers or layers)
    ]
    encoder = Encoder(source, encoder_blocks, final_norm())
    decoder = Decoder(target, decoder_blocks, final_norm())
    initialise(encoder)
    initialise(decoder)
    return EncoderDecoder(encoder, decoder, TiedHead(target) if tie_output else Head(width, target_vocabulary))


def transformer_tiny(vocabulary: int, **changes: Any) -> EncoderDecoder:
    """Width 128, 4 heads, 2 + 2 layers: trains on a laptop in minutes."""
    return transformer(vocabulary, **{"width": 128, "heads": 4, "layers": 2, "hidden": 512} | changes)


def transformer_base(vocabulary: int = 37_000, **changes: Any) -> EncoderDecoder:
    """The paper's base model: width 512, 8 heads, 6 + 6 layers, post-norm."""
    return transformer(vocabulary, **{"residual": PostNorm} | changes)


def transformer_big(vocabulary: int = 37_000, **changes: Any) -> EncoderDecoder:
    """The paper's big model: width 1024, 16 heads, 6 + 6 layers, dropout 0.3, post-norm."""
    big: dict[str, Any] = {"width": 1024, "heads": 16, "hidden": 4096, "dropout": 0.3, "residual": PostNorm}
    return transformer(vocabulary, **big | changes)
