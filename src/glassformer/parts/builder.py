"""The builder of blocks: what all blocks of a model have in common is said once.

B batch, T length
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from glassformer.parts.attention import MultiHeadAttention
from glassformer.parts.blocks import AnyEmbedding, Decoder, DecoderBlock, Encoder, EncoderBlock
from glassformer.parts.checks import check_positive
from glassformer.parts.embeddings import Embedding
from glassformer.parts.feedforward import Activation, FeedForward, GatedFeedForward, relu
from glassformer.parts.linear import Linear, MakeLinear
from glassformer.parts.norms import LayerNorm, Norm, PreNorm, Residual
from glassformer.parts.positions import AttentionPositions
from glassformer.parts.schemes import Sizes
from glassformer.parts.similarity import Similarity, scaled_dot_similarity
from glassformer.parts.values import ValueEmbedding


@dataclass(frozen=True)
class BlockBuilder:
    """Makes blocks of attention and feed-forward, each wrapped in its norm and its residual connection."""

    width: int
    heads: int
    hidden: int
    dropout: float = 0.0  # of what each part adds to the residual stream
    attention_dropout: float = 0.0  # of attention weights
    key_value_heads: int | None = None
    head_width: int | None = None
    inner_dropout: float = 0.0  # inside feed-forward
    residual: Residual = PreNorm
    norm: Norm = LayerNorm
    epsilon: float | None = None  # of the norms; None: their own
    activation: Activation = relu
    gated: bool = False
    attention_bias: bool = True
    feed_forward_bias: bool | None = None  # None: in a plain feed-forward only
    similarity: Similarity = scaled_dot_similarity  # of queries and keys
    linear: MakeLinear = Linear

    def sizes(self, length: int = 512, **others: Any) -> Sizes:
        """What a scheme of positions has to know."""
        check_positive(width=self.width, heads=self.heads)
        return Sizes(self.width, self.heads, self.head_width or self.width // self.heads, length, **others)

    def make_norm(self) -> nn.Module:
        """A norm like those of the blocks."""
        return self.norm(self.width) if self.epsilon is None else self.norm(self.width, self.epsilon)

    def final_norm(self) -> nn.Module | None:
        """The norm after the last block, where the residual connections leave one to be done."""
        return self.make_norm() if self.residual.final_norm else None

    def attention(self, positions: AttentionPositions | None = None) -> nn.Module:
        """Attention to the tokens themselves or to a source."""
        part = MultiHeadAttention(
            self.width,
            self.heads,
            key_value_heads=self.key_value_heads,
            head_width=self.head_width,
            bias=self.attention_bias,
            dropout=self.attention_dropout,
            similarity=self.similarity,
            positions=positions,
            linear=self.linear,
        )
        return self.residual(part, self.make_norm(), self.dropout)

    def feed_forward(self) -> nn.Module:
        """Feed-forward, plain or gated."""
        kind = GatedFeedForward if self.gated else FeedForward
        bias = not self.gated if self.feed_forward_bias is None else self.feed_forward_bias
        part = kind(self.width, self.hidden, self.activation, self.inner_dropout, bias, self.linear)
        return self.residual(part, self.make_norm(), self.dropout)

    def encoder_blocks(self, count: int, positions: AttentionPositions | None = None) -> list[EncoderBlock]:
        """Blocks that read all tokens at once; `positions` work in each self-attention."""
        return [EncoderBlock(self.attention(positions), self.feed_forward()) for _ in range(count)]

    def decoder_blocks(
        self, count: int, positions: AttentionPositions | None = None, cross: bool = False
    ) -> list[DecoderBlock]:
        """Blocks that read the past, and with `cross` a source; `positions` work in each self-attention."""
        return [
            DecoderBlock(self.attention(positions), self.attention() if cross else None, self.feed_forward())
            for _ in range(count)
        ]

    def encoder(self, embedding: AnyEmbedding, count: int, positions: AttentionPositions | None = None) -> Encoder:
        """Encoder blocks between an embedding and the final norm."""
        return Encoder(embedding, self.encoder_blocks(count, positions), self.final_norm())

    def decoder(
        self,
        embedding: Embedding | ValueEmbedding,
        count: int,
        positions: AttentionPositions | None = None,
        cross: bool = False,
    ) -> Decoder:
        """Decoder blocks between an embedding and the final norm."""
        return Decoder(embedding, self.decoder_blocks(count, positions, cross), self.final_norm())
