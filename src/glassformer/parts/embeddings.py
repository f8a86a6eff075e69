"""Embeddings: from token numbers to vectors, and back from vectors to scores of tokens.

B batch, T length, D model width, V vocabulary
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.errors import ConfigurationError, InputError
from glassformer.parts.checks import check_positive, check_tokens
from glassformer.parts.dropout import Dropout
from glassformer.parts.linear import Linear, linear
from glassformer.parts.observing import Axes, Observer, axes
from glassformer.parts.positions import EmbeddingPositions, NoPositions, Position


class Embedding(nn.Module):
    """A row of a table for each token, times `scale` (√D in the paper), plus its position, then norm and dropout.

    With `segments` there is a second, small table: BERT tells first and second sentence apart by it.
    """

    def __init__(
        self,
        vocabulary: int,
        width: int,
        scale: float = 1.0,
        positions: EmbeddingPositions | None = None,
        norm: nn.Module | None = None,
        dropout: float = 0.0,
        segments: int | None = None,
    ) -> None:
        super().__init__()
        check_positive(vocabulary=vocabulary, width=width, segments=1 if segments is None else segments)
        if hasattr(positions, "rotate"):
            raise ConfigurationError(
                f"{type(positions).__name__} works inside attention: pass it to the attention part"
            )
        self.vocabulary, self.width, self.scale = vocabulary, width, scale
        self.weight = nn.Parameter(torch.empty(vocabulary, width))
        nn.init.normal_(self.weight, std=width**-0.5)
        self.segments = None if segments is None else nn.Parameter(0.02 * torch.randn(segments, width))
        self.positions = NoPositions() if positions is None else positions
        self.norm = nn.Identity() if norm is None else norm
        self.dropout = Dropout(dropout)

    def reads(self) -> dict[str, Axes]:
        """What passes before anything is embedded."""
        return {"tokens": axes(token=None)}

    def length(self, tokens: Tensor) -> int:
        """How many vectors each text becomes: T of tokens (B, T)."""
        return tokens.shape[1]

    def check(self, tokens: Tensor, what: str = "tokens", anywhere: bool = False) -> None:
        """Refuse what is no table of tokens of this vocabulary."""
        check_tokens(tokens, self.vocabulary, what, anywhere)

    def forward(
        self,
        tokens: Tensor,
        position: Position = None,
        segments: Tensor | None = None,
        observe: Observer | None = None,
    ) -> Tensor:
        """Tokens (B, T) as vectors (B, T, D) that know their positions, and which segment (B, T) they are from.

        Two stacks may share an embedding, so the stack that reads says who observes.
        """
        self.check(tokens)
        x = F.embedding(tokens.long(), self.weight) * self.scale  # (B, T, D)
        if self.segments is not None:
            x = x + _segment_vectors(self.segments, segments, tokens)
        elif segments is not None:
            raise InputError("this model has no table of segments: leave them out")
        return self.dropout(self.norm(placed(x, self.positions, position, observe)))  # type: ignore[no-any-return]


def placed(x: Tensor, positions: EmbeddingPositions, position: Position, observe: Observer | None) -> Tensor:
    """Vectors (B, T, D) with their positions added, each of the two observed by itself."""
    if observe is None:
        return positions(x, position)
    x = observe("embedding", x)
    if not observe.wants("positions"):
        return positions(x, position)
    return x + observe("positions", positions(torch.zeros_like(x), position))


def _segment_vectors(table: Tensor, segments: Tensor | None, tokens: Tensor) -> Tensor:
    """The vectors of the segments (B, T, D); without any, all tokens are from the first."""
    if segments is None:
        return table[:1]
    check_tokens(segments, len(table), "segments")
    if segments.shape != tokens.shape:
        raise InputError(f"segments have the shape {tuple(segments.shape)}, but tokens have {tuple(tokens.shape)}")
    return F.embedding(segments.long(), table)


class TiedHead(nn.Module):
    """Scores of tokens by the embedding's own table: a token scores high where the vector points its way."""

    def __init__(self, embedding: Embedding, bias: bool = False) -> None:
        super().__init__()
        self.embedding = embedding
        self.bias = nn.Parameter(torch.zeros(embedding.vocabulary)) if bias else None

    @property
    def weight(self) -> nn.Parameter:
        """The embedding's table, (V, D)."""
        return self.embedding.weight

    def forward(self, x: Tensor) -> Tensor:
        """Vectors (B, T, D) to logits (B, T, V)."""
        return linear(x, self.weight, self.bias)


class Head(Linear):
    """Scores of tokens by a table of its own."""

    def __init__(self, width: int, vocabulary: int, bias: bool = False) -> None:
        check_positive(width=width, vocabulary=vocabulary)
        super().__init__(width, vocabulary, bias=bias)
        nn.init.xavier_uniform_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)
