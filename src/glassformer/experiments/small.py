"""Small models for experiments: the library's own parts in their usual places, one of them exchanged at a time.

B batch, T length, D model width, V vocabulary
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from torch import nn

from glassformer.models.decoder_only import DecoderOnly
from glassformer.models.encoder_only import EncoderOnly
from glassformer.models.initialise import initialise
from glassformer.parts.attention import MultiHeadAttention
from glassformer.parts.blocks import Decoder, DecoderBlock, Encoder, EncoderBlock
from glassformer.parts.embeddings import Embedding, TiedHead
from glassformer.parts.feedforward import FeedForward, gelu
from glassformer.parts.heads import Classifier, FirstToken
from glassformer.parts.norms import LayerNorm, Placement, PreNorm
from glassformer.parts.positions import (
    ALiBi,
    AttentionPositions,
    EmbeddingPositions,
    Learned,
    RelativeBias,
    Rotary,
    Sinusoidal,
)


@dataclass(frozen=True)
class Scheme:
    """How a model learns of order: by what is added to its embeddings, or inside its attention, or not at all."""

    embedding: EmbeddingPositions | None = None
    attention: AttentionPositions | None = None


@dataclass(frozen=True)
class Small:
    """The parts of a small model that reads or writes tokens."""

    vocabulary: int
    width: int = 64
    heads: int = 4
    layers: int = 2
    scheme: Scheme = Scheme()
    residual: Placement = PreNorm
    norm: Callable[[int], nn.Module] = LayerNorm

    def language_model(self) -> DecoderOnly:
        """It scores the token after each, and sees none that comes later."""
        blocks = [DecoderBlock(self._attention(), None, self._feed_forward()) for _ in range(self.layers)]
        decoder = Decoder(self._embedding(), blocks, self._final_norm())
        initialise(decoder)
        return DecoderOnly(decoder, TiedHead(decoder.embedding))

    def reader(self) -> EncoderOnly:
        """It scores a token at each place, and sees all of them: the same parts without the mask."""
        encoder = self._encoder()
        return EncoderOnly(encoder, TiedHead(encoder.embedding))

    def classifier(self, classes: int) -> EncoderOnly:
        """It reads a text whole and scores classes, from the vector of the first token."""
        return EncoderOnly(self._encoder(), Classifier(FirstToken(), self.width, classes))

    def _encoder(self) -> Encoder:
        blocks = [EncoderBlock(self._attention(), self._feed_forward()) for _ in range(self.layers)]
        encoder = Encoder(self._embedding(), blocks, self._final_norm())
        initialise(encoder)
        return encoder

    def _embedding(self) -> Embedding:
        scale = math.sqrt(self.width)
        return Embedding(self.vocabulary, self.width, scale=scale, positions=self.scheme.embedding)

    def _attention(self) -> nn.Module:
        part = MultiHeadAttention(self.width, self.heads, positions=self.scheme.attention)
        return self.residual(part, self.norm(self.width))

    def _feed_forward(self) -> nn.Module:
        return self.residual(FeedForward(self.width, 4 * self.width, gelu), self.norm(self.width))

    def _final_norm(self) -> nn.Module | None:
        return self.norm(self.width) if self.residual.final_norm else None


def schemes(shape: Small, length: int, both_ways: bool) -> dict[str, Small]:
    """The same model with every scheme of positions, for texts up to `length`; `both_ways`: the future counts too."""
    width, heads = shape.width, shape.heads
    made = {
        "none": Scheme(),
        "sinusoidal": Scheme(embedding=Sinusoidal(width)),
        "learned": Scheme(embedding=Learned(length, width)),
        "rotary": Scheme(attention=Rotary(width // heads)),
        "relative (T5)": Scheme(attention=RelativeBias(heads, bidirectional=both_ways)),
        "ALiBi": Scheme(attention=ALiBi(heads)),
    }
    return {name: replace(shape, scheme=scheme) for name, scheme in made.items()}
