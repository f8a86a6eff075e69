"""T5: an encoder and a decoder whose only notion of order is a trained number for each distance and head."""

from __future__ import annotations

import torch
from torch import nn

from glassformer.models.encoder_decoder import EncoderDecoder
from glassformer.models.family import family
from glassformer.models.initialise import initialise
from glassformer.parts.attention import MultiHeadAttention
from glassformer.parts.blocks import Decoder, DecoderBlock, Encoder, EncoderBlock
from glassformer.parts.dropout import Dropout
from glassformer.parts.embeddings import Embedding, Head, TiedHead
from glassformer.parts.feedforward import FeedForward, GatedFeedForward, Linear, gelu_tanh, relu
from glassformer.parts.norms import PreNorm, RMSNorm, Scale
from glassformer.parts.positions import RelativeBias


@family
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
    gated: bool = False,
    buckets: int = 32,
    distance: int = 128,
    epsilon: float = 1e-6,
    tie_output: bool = True,
    scaled: bool | None = None,
    linear: Linear = nn.Linear,
) -> EncoderDecoder:
    """The model of "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer".

    As in the paper it is plain (ReLU) and tied; version 1.1 is `gated` (GELU) and not tied. What a tied head reads is
    `scaled` by 1/√D, unless told otherwise. Attention is not divided by √d: the original's initialisation saw to that.
    """

    def attention(positions: RelativeBias | None) -> nn.Module:
        part = MultiHeadAttention(
            width,
            heads,
            head_width=head_width,
            bias=False,
            dropout=dropout,
            scale=1.0,
            positions=positions,
            linear=linear,
        )
        return PreNorm(part, RMSNorm(width, epsilon), dropout)

    def feed_forward() -> nn.Module:
        part = (
            GatedFeedForward(width, hidden, gelu_tanh, dropout, linear=linear)
            if gated
            else FeedForward(width, hidden, relu, dropout, bias=False, linear=linear)
        )
        return PreNorm(part, RMSNorm(width, epsilon), dropout)

    both_ways, backwards = (RelativeBias(heads, buckets, distance, bidirectional=both) for both in (True, False))
    embedding = Embedding(vocabulary, width, dropout=dropout)
    blocks = [EncoderBlock(attention(both_ways), feed_forward()) for _ in range(layers)]
    encoder = Encoder(embedding, blocks, nn.Sequential(RMSNorm(width, epsilon), Dropout(dropout)))
    decoder_blocks = [
        DecoderBlock(attention(backwards), attention(None), feed_forward()) for _ in range(decoder_layers or layers)
    ]
    shrink = Scale(width**-0.5 if (tie_output if scaled is None else scaled) else 1.0)
    decoder = Decoder(embedding, decoder_blocks, nn.Sequential(RMSNorm(width, epsilon), Dropout(dropout), shrink))
    initialise(encoder)
    initialise(decoder)
    with torch.no_grad():  # what nothing is divided by afterwards begins accordingly
        nn.init.normal_(embedding.weight)
        for name, weight in (*encoder.named_parameters(), *decoder.named_parameters()):
            if name.endswith("query.weight"):
                weight.mul_(head_width**-0.5)
    return EncoderDecoder(encoder, decoder, TiedHead(embedding) if tie_output else Head(width, vocabulary))
