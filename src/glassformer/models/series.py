"""Models that read numbers: the encoder, the decoder and the recurrent layers of texts, with values in place of words.

B batch, T steps, C columns or classes, D model width, N numbers
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, get_args

from torch import nn

from glassformer.errors import ConfigurationError
from glassformer.models.family import family
from glassformer.models.initialise import initialise
from glassformer.models.shapes import DecoderOnly, EncoderOnly
from glassformer.parts.builder import BlockBuilder
from glassformer.parts.feedforward import Activation, gelu
from glassformer.parts.heads import Classifier
from glassformer.parts.linear import Linear, MakeLinear
from glassformer.parts.norms import LayerNorm, Norm, PreNorm, Residual, UnpaddedNorm
from glassformer.parts.recurrent import LSTM, CellKind, Recurrent
from glassformer.parts.recurrent_stacks import RecurrentEncoder, the_end
from glassformer.parts.schemes import Positions, sinusoidal
from glassformer.parts.values import LastStep, NumberHead, ValueEmbedding

Answer = Literal["numbers", "series-classes"]


@family
def series_encoder(
    columns: int,
    width: int = 128,
    heads: int = 4,
    layers: int = 3,
    hidden: int = 256,
    dropout: float = 0.1,
    *,
    length: int = 512,
    answer: Answer = "numbers",
    classes: int = 2,
    numbers: int = 1,
    attention_dropout: float = 0.0,
    activation: Activation = gelu,
    gated: bool = False,
    key_value_heads: int | None = None,
    norm: UnpaddedNorm = LayerNorm,
    residual: Residual = PreNorm,
    positions: Positions = sinusoidal,
    linear: MakeLinear = Linear,
) -> EncoderOnly:
    """A Transformer encoder of series with so many `columns`: every step sees every other.

    It answers with `numbers` (B, N), such as the next values, or `series-classes` (B, C), read off the last step.
    """
    blocks = BlockBuilder(width, heads, hidden, dropout, attention_dropout, key_value_heads, linear=linear)
    blocks = replace(blocks, residual=residual, norm=norm, activation=activation, gated=gated)
    sizes = blocks.sizes(length)
    embedding = ValueEmbedding(columns, width, positions.embedding(sizes), dropout)
    encoder = blocks.encoder(embedding, layers, positions.attention(sizes, True))
    initialise(encoder)
    return EncoderOnly(encoder, _head(answer, width, classes, numbers, dropout))


@family
def series_decoder(
    columns: int,
    width: int = 128,
    heads: int = 4,
    layers: int = 3,
    hidden: int = 256,
    dropout: float = 0.1,
    *,
    length: int = 512,
    answer: Answer = "numbers",
    classes: int = 2,
    numbers: int = 1,
    attention_dropout: float = 0.0,
    activation: Activation = gelu,
    gated: bool = False,
    key_value_heads: int | None = None,
    norm: Norm = LayerNorm,
    residual: Residual = PreNorm,
    positions: Positions = sinusoidal,
    linear: MakeLinear = Linear,
) -> DecoderOnly:
    """A Transformer decoder of series with so many `columns`: every step sees itself and those before it.

    It answers with `numbers` (B, N), such as the next values, or `series-classes` (B, C), read off the last step.
    """
    blocks = BlockBuilder(width, heads, hidden, dropout, attention_dropout, key_value_heads, linear=linear)
    blocks = replace(blocks, residual=residual, norm=norm, activation=activation, gated=gated)
    sizes = blocks.sizes(length)
    embedding = ValueEmbedding(columns, width, positions.embedding(sizes), dropout)
    decoder = blocks.decoder(embedding, layers, positions.attention(sizes, False))
    initialise(decoder)
    return DecoderOnly(decoder, _head(answer, width, classes, numbers, dropout))


@family
def series_recurrent(
    columns: int,
    width: int = 128,
    layers: int = 1,
    dropout: float = 0.1,
    *,
    answer: Answer = "numbers",
    cell: CellKind = LSTM,
    bidirectional: bool = False,
    classes: int = 2,
    numbers: int = 1,
) -> EncoderOnly:
    """Recurrent layers, RNN, GRU or LSTM, that read series with so many `columns` step by step.

    It answers with `numbers` (B, N), such as the next values, or `series-classes` (B, C), read off the last state.
    Where it is `bidirectional`, each direction has half of the width.
    """
    if bidirectional and width % 2:
        raise ConfigurationError(f"width {width} does not divide into two directions: make it even")
    embedding = ValueEmbedding(columns, width, dropout=dropout)
    reads = Recurrent(cell, width, width // 2 if bidirectional else width, layers, bidirectional, dropout)
    encoder = RecurrentEncoder(embedding, reads, dropout, the_end)
    return EncoderOnly(encoder, _head(answer, width, classes, numbers, dropout, nn.Identity()))


def _head(
    answer: str, width: int, classes: int, numbers: int, dropout: float, pool: nn.Module | None = None
) -> nn.Module:
    """What reads the answer off the last step, or off what a `pool` gives."""
    if answer not in get_args(Answer):
        raise ConfigurationError(f'a model of series answers with one of {", ".join(get_args(Answer))}, not "{answer}"')
    if answer == "numbers":
        return NumberHead(pool or LastStep(), width, numbers, dropout)
    return Classifier(pool or LastStep(), width, classes, dropout)
