"""BART: the paper's Transformer with learned positions and normed embeddings, trained to mend spoilt text."""

from __future__ import annotations

import math

from torch import nn

from glassformer.models.encoder_decoder import EncoderDecoder
from glassformer.models.family import family
from glassformer.models.initialise import initialise
from glassformer.parts.attention import MultiHeadAttention
from glassformer.parts.blocks import Decoder, DecoderBlock, Encoder, EncoderBlock
from glassformer.parts.embeddings import Embedding, TiedHead
from glassformer.parts.feedforward import Activation, FeedForward, Linear, gelu
from glassformer.parts.norms import LayerNorm, PostNorm
from glassformer.parts.positions import Learned


@family
def bart(
    vocabulary: int = 50_265,
    width: int = 768,
    heads: int = 12,
    layers: int = 6,
    hidden: int = 3072,
    length: int = 1024,
    dropout: float = 0.1,
    *,
    decoder_heads: int | None = None,
    decoder_layers: int | None = None,
    decoder_hidden: int | None = None,
    attention_dropout: float = 0.0,
    inner_dropout: float = 0.0,
    activation: Activation = gelu,
    scaled: bool = False,
    linear: Linear = nn.Linear,
) -> EncoderDecoder:
    """The model of "BART: Denoising Sequence-to-Sequence Pre-training", for texts up to `length` tokens."""

    def embed() -> Embedding:
        return Embedding(
            vocabulary,
            width,
            scale=math.sqrt(width) if scaled else 1.0,
            positions=Learned(length, width, skip=2),  # the first two rows of BART's tables are of no use
            norm=LayerNorm(width),
            dropout=dropout,
        )

    source, target = embed(), embed()
    target.weight = source.weight
    return post_norm_pair(
        (source, target),
        (heads, decoder_heads or heads),
        (layers, decoder_layers or layers),
        (hidden, decoder_hidden or hidden),
        (dropout, attention_dropout, inner_dropout),
        activation,
        linear,
    )


def post_norm_pair(
    embeddings: tuple[Embedding, Embedding],
    heads: tuple[int, int],
    layers: tuple[int, int],
    hidden: tuple[int, int],
    dropouts: tuple[float, float, float],
    activation: Activation,
    linear: Linear,
) -> EncoderDecoder:
    """A post-norm encoder and decoder, whose numbers may differ; the head is tied, with a bias.

    `dropouts`: on what each part adds to the residual stream, on attention weights, inside feed-forward.
    """
    (source, target), (dropout, of_attention, inner) = embeddings, dropouts
    width = source.width

    def attention(heads: int) -> nn.Module:
        part = MultiHeadAttention(width, heads, dropout=of_attention, linear=linear)
        return PostNorm(part, LayerNorm(width), dropout)

    def feed_forward(hidden: int) -> nn.Module:
        return PostNorm(FeedForward(width, hidden, activation, inner, linear=linear), LayerNorm(width), dropout)

    encoder = Encoder(source, [EncoderBlock(attention(heads[0]), feed_forward(hidden[0])) for _ in range(layers[0])])
    decoder = Decoder(
        target,
        [DecoderBlock(attention(heads[1]), attention(heads[1]), feed_forward(hidden[1])) for _ in range(layers[1])],
    )
    initialise(encoder)
    initialise(decoder)
    return EncoderDecoder(encoder, decoder, TiedHead(target, bias=True))
