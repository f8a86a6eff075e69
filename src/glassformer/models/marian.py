"""Marian: the Transformer as Marian NMT and the OPUS-MT models have it: sinusoidal, one table for everything."""

from __future__ import annotations

import math

from torch import nn

from glassformer.models.bart import post_norm_pair
from glassformer.models.encoder_decoder import EncoderDecoder
from glassformer.models.family import family
from glassformer.parts.embeddings import Embedding
from glassformer.parts.feedforward import Activation, Linear, silu
from glassformer.parts.positions import Sinusoidal


@family
def marian(
    vocabulary: int = 58_101,
    width: int = 512,
    heads: int = 8,
    layers: int = 6,
    hidden: int = 2048,
    dropout: float = 0.1,
    *,
    decoder_heads: int | None = None,
    decoder_layers: int | None = None,
    decoder_hidden: int | None = None,
    attention_dropout: float = 0.0,
    inner_dropout: float = 0.0,
    activation: Activation = silu,
    scaled: bool = True,
    linear: Linear = nn.Linear,
) -> EncoderDecoder:
    """The translator of "Marian: Fast Neural Machine Translation in C++" and of the OPUS-MT models."""
    scale = math.sqrt(width) if scaled else 1.0
    embedding = Embedding(vocabulary, width, scale, Sinusoidal(width, interleaved=False), dropout=dropout)
    return post_norm_pair(
        (embedding, embedding),
        (heads, decoder_heads or heads),
        (layers, decoder_layers or layers),
        (hidden, decoder_hidden or hidden),
        (dropout, attention_dropout, inner_dropout),
        activation,
        linear,
    )
