"""T5: an encoder and a decoder whose only notion of order is a trained number for each distance and head."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import torch
from torch import nn

from glassformer.errors import ConfigurationError
from glassformer.models.descriptions import DESCRIPTIONS
from glassformer.models.family import family
from glassformer.models.initialise import initialise
from glassformer.models.shapes import EncoderDecoder
from glassformer.parts.builder import BlockBuilder
from glassformer.parts.dropout import Dropout
from glassformer.parts.embeddings import Embedding, Head, TiedHead
from glassformer.parts.feedforward import Activation, gelu_tanh, relu
from glassformer.parts.linear import Linear, MakeLinear
from glassformer.parts.norms import Norm, PreNorm, Residual, RMSNorm, Scale
from glassformer.parts.schemes import Positions, relative
from glassformer.parts.similarity import dot_similarity

BUCKETS, DISTANCE = 32, 128  # of relative positions in the paper
ATTENTION_DROPOUT = f"{DESCRIPTIONS['attention_dropout']} (default: dropout)"


@family(answers=["target"])
def t5(
    vocabulary: int = 32_128,
    width: int = 512,
    heads: int = 8,
    layers: int = 6,
    hidden: int = 2048,
    dropout: float = 0.1,
    *,
    decoder_layers: int | None = None,
    head_width: int = 64,
    key_value_heads: int | None = None,
    attention_dropout: Annotated[float | None, ATTENTION_DROPOUT] = None,
    gated: bool = False,
    activation: Activation | None = None,
    norm: Norm = RMSNorm,
    residual: Residual = PreNorm,
    positions: Positions = relative,
    length: int = 512,
    buckets: int = BUCKETS,
    distance: int = DISTANCE,
    epsilon: float = 1e-6,
    tie_output: bool = True,
    scaled: bool | None = None,
    linear: MakeLinear = Linear,
) -> EncoderDecoder:
    """The model of "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer".

    As in the paper it is plain (ReLU) and tied; version 1.1 is `gated` (GELU) and not tied. What a tied head reads is
    `scaled` by 1/√D by default. Attention scores are not divided by √d: the initial weights of the queries are.
    """
    if positions is not relative and (buckets, distance) != (BUCKETS, DISTANCE):
        raise ConfigurationError("buckets and distance have no effect: they are for relative positions only")
    activation = activation or (gelu_tanh if gated else relu)
    rate = dropout if attention_dropout is None else attention_dropout
    blocks = BlockBuilder(width, heads, hidden, dropout, rate, key_value_heads, head_width, dropout, linear=linear)
    blocks = replace(blocks, similarity=dot_similarity, attention_bias=False, feed_forward_bias=False)
    blocks = replace(blocks, residual=residual, norm=norm, epsilon=epsilon, activation=activation, gated=gated)
    sizes = blocks.sizes(length, buckets=buckets, distance=distance)
    both_ways, backwards = positions.attention(sizes, True), positions.attention(sizes, False)
    embedding = Embedding(vocabulary, width, positions=positions.embedding(sizes), dropout=dropout)
    encoder = blocks.encoder(embedding, layers, both_ways)
    encoder.norm = nn.Sequential(encoder.norm, Dropout(dropout))
    decoder = blocks.decoder(embedding, decoder_layers or layers, backwards, cross=True)
    shrink = Scale(width**-0.5 if (tie_output if scaled is None else scaled) else 1.0)
    decoder.norm = nn.Sequential(decoder.norm, Dropout(dropout), shrink)
    initialise(encoder, decoder)
    with torch.no_grad():  # scores are not divided by √d later, so the queries are now
        nn.init.normal_(embedding.weight)
        for name, weight in (*encoder.named_parameters(), *decoder.named_parameters()):
            if name.endswith("query.weight"):
                weight.mul_(head_width**-0.5)
    return EncoderDecoder(encoder, decoder, TiedHead(embedding) if tie_output else Head(width, vocabulary))
