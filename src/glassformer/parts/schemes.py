"""Schemes of positions: the same model with another notion of order.

A scheme makes the part that is added to the embeddings, or the part that works inside self-attention, or both. The
schemes of this file have names in recipes; `scheme_of` makes one from parts of your own.

B batch, T length
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Self

from glassformer.parts.named import Named
from glassformer.parts.positions import (
    ALiBi,
    AttentionPositions,
    EmbeddingPositions,
    Learned,
    NoPositions,
    RelativeBias,
    Rotary,
    Sinusoidal,
)


@dataclass(frozen=True)
class Sizes:
    """The numbers of a model that its positions depend on."""

    width: int
    heads: int
    head_width: int
    length: int = 512  # positions in a learned table
    skip: int = 0  # rows at the start of a learned table that stay unused
    interleaved: bool = True  # sinusoids: sines and cosines take turns; False: all sines come first
    base: float = 10_000.0  # of rotary angles
    buckets: int = 32  # of relative distances
    distance: int = 128  # from which all relative distances share a bucket


@dataclass(frozen=True, eq=False)
class Scheme:
    """How a model learns of order: what is added to its embeddings, and what works inside its self-attention.

    The second argument of `attention` is True for an encoder, which is bidirectional, and False for a decoder.
    """

    embedding: Callable[[Sizes], EmbeddingPositions] = lambda sizes: NoPositions()
    attention: Callable[[Sizes, bool], AttentionPositions | None] = lambda sizes, bidirectional: None

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        """Itself: a copied model has the same scheme, under the same name."""
        return self


def scheme_of(embedding: EmbeddingPositions | None = None, attention: AttentionPositions | None = None) -> Scheme:
    """A scheme of finished parts: one to add to the embeddings, one for all self-attentions, or both."""
    return Scheme(lambda sizes: NoPositions() if embedding is None else embedding, lambda sizes, _: attention)


sinusoidal = Scheme(embedding=lambda sizes: Sinusoidal(sizes.width, interleaved=sizes.interleaved))
learned = Scheme(embedding=lambda sizes: Learned(sizes.length, sizes.width, sizes.skip))
rotary = Scheme(attention=lambda sizes, _: Rotary(sizes.head_width, sizes.base))
alibi = Scheme(attention=lambda sizes, _: ALiBi(sizes.heads))
relative = Scheme(attention=lambda sizes, both: RelativeBias(sizes.heads, sizes.buckets, sizes.distance, both))
unordered = Scheme()

Positions = Annotated[
    Scheme,
    Named(sinusoidal=sinusoidal, learned=learned, rotary=rotary, alibi=alibi, relative=relative, none=unordered),
]
FramePositions = Annotated[  # of the images of a film: what works inside attention counts tokens, not images
    Scheme, Named(learned=learned, sinusoidal=sinusoidal, none=unordered)
]
