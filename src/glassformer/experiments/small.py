"""Small models for experiments: the library's own parts in their usual places, one of them exchanged at a time.

B batch, T length, D model width, V vocabulary
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, cast

from torch import nn

from glassformer.models import DecoderOnly, EncoderOnly, recurrent
from glassformer.models.initialise import initialise
from glassformer.parts.blocks import Decoder, Encoder
from glassformer.parts.builder import BlockBuilder
from glassformer.parts.embeddings import Embedding, TiedHead
from glassformer.parts.feedforward import gelu
from glassformer.parts.heads import Classifier, FirstToken
from glassformer.parts.norms import LayerNorm, Norm, PreNorm, Residual
from glassformer.parts.recurrent import GRU, LSTM, RNN, Cell
from glassformer.parts.schemes import Positions, alibi, learned, relative, rotary, scheme_of, sinusoidal, unordered

CELLS: dict[str, type[Cell]] = {"RNN": RNN, "GRU": GRU, "LSTM": LSTM}
SCHEMES = {
    "none": unordered,
    "sinusoidal": sinusoidal,
    "learned": learned,
    "rotary": rotary,
    "relative (T5)": relative,
    "ALiBi": alibi,
}


@dataclass(frozen=True)
class Small:
    """The parts of a small model that reads or writes tokens."""

    vocabulary: int
    width: int = 64
    heads: int = 4
    layers: int = 2
    positions: Positions = unordered
    residual: Residual = PreNorm
    norm: Norm = LayerNorm
    length: int = 512

    def language_model(self) -> DecoderOnly:
        """It scores the token after each, and sees none that comes later."""
        embedding, *others = self._parts(bidirectional=False)
        decoder = Decoder(embedding, *others)
        initialise(decoder)
        return DecoderOnly(decoder, TiedHead(embedding))

    def reader(self) -> EncoderOnly:
        """It scores a token at each position, and sees all of them: the same parts without the mask."""
        encoder, embedding = self._encoder()
        return EncoderOnly(encoder, TiedHead(embedding))

    def classifier(self, classes: int) -> EncoderOnly:
        """It reads a text whole and scores classes, from the vector of the first token."""
        return EncoderOnly(self._encoder()[0], Classifier(FirstToken(), self.width, classes))

    def _encoder(self) -> tuple[Encoder, Embedding]:
        embedding, *others = self._parts(bidirectional=True)
        encoder = Encoder(embedding, *others)
        initialise(encoder)
        return encoder, embedding

    def _parts(self, bidirectional: bool) -> tuple[Embedding, Any, Any]:
        """The embedding, the blocks, and the norm after the last, if there is one."""
        width, residual, norm = self.width, self.residual, self.norm
        builder = BlockBuilder(width, self.heads, 4 * width, residual=residual, norm=norm, activation=gelu)
        sizes = builder.sizes(self.length)
        added, inside = self.positions.embedding(sizes), self.positions.attention(sizes, bidirectional)
        blocks = (builder.encoder_blocks if bidirectional else builder.decoder_blocks)(self.layers, inside)
        return Embedding(self.vocabulary, width, math.sqrt(width), added), blocks, builder.final_norm()


def language_model(kind: str, vocabulary: int, width: int) -> DecoderOnly:
    """A language model of one recurrent layer of this kind of cell, or a small Transformer with sinusoids."""
    if kind in CELLS:
        return cast(DecoderOnly, recurrent(vocabulary, width, dropout=0.0, answer="next", cell=CELLS[kind]))
    return Small(vocabulary, width, positions=sinusoidal).language_model()


def blocks_of(model: DecoderOnly) -> nn.ModuleList:
    """The blocks of a small language model."""
    return cast(Decoder, model.decoder).blocks


def with_all_schemes(shape: Small, length: int, bidirectional: bool) -> dict[str, Small]:
    """The same model with every scheme of positions, for texts up to `length`."""
    sizes = BlockBuilder(shape.width, shape.heads, 4 * shape.width).sizes(length)
    made = {name: (each.embedding(sizes), each.attention(sizes, bidirectional)) for name, each in SCHEMES.items()}
    return {name: replace(shape, positions=scheme_of(*parts)) for name, parts in made.items()}
