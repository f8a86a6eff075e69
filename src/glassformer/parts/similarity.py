"""Similarity: how well a key suits a query, before the softmax makes weights of it.

    dot             q · k                   grows with the lengths of the vectors and with their width
    scaled dot      q · k / √d              its variance does not grow with d: what Transformers use
    cosine          q · k / (|q| |k|)       the angle alone, between -1 and 1

Each is a part for the same place: `MultiHeadAttention(width, heads, similarity=cosine_similarity)`. All are a product,
of vectors that are normalised first or are not: so one fused kernel serves all of them.

T query length, S key length, K width of the vectors
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.parts.named import Named


class UnitLength(nn.Module):
    """x / |x|: the direction of each vector (…, K) alone; a vector of zeros stays one."""

    def forward(self, x: Tensor) -> Tensor:
        return F.normalize(x, dim=-1)


@dataclass(frozen=True, eq=False)
class Similarity:
    """A product of queries and keys, each after a norm of its own, times a factor."""

    norm: Callable[[], nn.Module] = nn.Identity  # of queries and of keys
    scale: float | None = None  # of the product; None: 1/√K

    def __call__(self, query: Tensor, key: Tensor) -> Tensor:
        """The similarity of every query (…, T, K) and key (…, S, K): (…, T, S)."""
        norm = self.norm()
        query, key = norm(query), norm(key)
        factor = query.shape[-1] ** -0.5 if self.scale is None else self.scale
        return torch.matmul(query, key.transpose(-2, -1)) * factor

    def after(self, norm: nn.Module | None) -> nn.Module:
        """The norm of queries or keys that have another `norm` before it, or none."""
        own = self.norm()
        if norm is None:
            return own
        return norm if isinstance(own, nn.Identity) else nn.Sequential(norm, own)

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        """Itself: a copied model compares in the same way, under the same name."""
        return self


dot_similarity = Similarity(scale=1.0)
scaled_dot_similarity = Similarity()
cosine_similarity = Similarity(UnitLength, scale=1.0)

SimilarityKind = Annotated[
    Similarity, Named(scaled_dot=scaled_dot_similarity, dot=dot_similarity, cosine=cosine_similarity)
]
