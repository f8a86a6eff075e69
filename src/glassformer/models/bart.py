"""BART and Marian: the paper's Transformer with learned positions and normed embeddings, or with sinusoids."""

from __future__ import annotations

import math
from dataclasses import replace

from glassformer.models.family import family, variant
from glassformer.models.initialise import initialise
from glassformer.models.shapes import EncoderDecoder
from glassformer.parts.builder import BlockBuilder
from glassformer.parts.embeddings import Embedding, TiedHead
from glassformer.parts.feedforward import Activation, gelu, silu
from glassformer.parts.linear import Linear, MakeLinear
from glassformer.parts.norms import LayerNorm, Norm, PostNorm, Residual
from glassformer.parts.schemes import Positions, learned, sinusoidal


@family(answers=["target"])
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
    gated: bool = False,
    key_value_heads: int | None = None,
    norm: Norm = LayerNorm,
    residual: Residual = PostNorm,
    positions: Positions = learned,
    embedding_norm: bool = True,
    scaled: bool = False,
    linear: MakeLinear = Linear,
) -> EncoderDecoder:
    """The model of "BART: Denoising Sequence-to-Sequence Pre-training", for texts up to `length` tokens.

    Source and target share one table of tokens; each side has positions and an embedding norm of its own.
    """
    reading = BlockBuilder(width, heads, hidden, dropout, attention_dropout, key_value_heads, linear=linear)
    reading = replace(reading, inner_dropout=inner_dropout, activation=activation, gated=gated)
    reading = replace(reading, residual=residual, norm=norm)
    writing = replace(reading, heads=decoder_heads or heads, hidden=decoder_hidden or hidden)
    # The first two rows of BART's tables of positions stay unused; sinusoids stand in halves, as in Marian.
    sizes, writing_sizes = (each.sizes(length, skip=2, interleaved=False) for each in (reading, writing))

    def embed() -> Embedding:
        scale, last = math.sqrt(width) if scaled else 1.0, norm(width) if embedding_norm else None
        return Embedding(vocabulary, width, scale, positions.embedding(sizes), last, dropout)

    source = embed()
    target = embed() if embedding_norm or positions is learned else source
    target.weight = source.weight
    encoder = reading.encoder(source, layers, positions.attention(sizes, True))
    backwards = positions.attention(writing_sizes, False)
    decoder = writing.decoder(target, decoder_layers or layers, backwards, cross=True)
    initialise(encoder, decoder)
    return EncoderDecoder(encoder, decoder, TiedHead(target, bias=True))


marian = variant(
    "marian",
    bart,
    """The translator of "Marian: Fast Neural Machine Translation in C++" and of the OPUS-MT models.

    It is BART with sinusoidal positions and without the norm of the embeddings, which are scaled by √width instead.
    """,
    vocabulary=58_101,
    width=512,
    heads=8,
    hidden=2048,
    activation=silu,
    positions=sinusoidal,
    embedding_norm=False,
    scaled=True,
)
