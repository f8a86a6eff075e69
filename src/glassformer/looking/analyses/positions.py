"""Positions: how a model's own scheme tells tokens apart that stand in different places, and how far that reaches.

    vectors that are added     similarity(i, j) = cos(p_i, p_j)
    rotations                  similarity(i, j) = tr(R_iᵀ R_j) / K: what is left of q · k, where q = k, on average
    biases                     what a head adds to a score, by the distance of the key

T positions, D width, H heads, K head width, N distances
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from glassformer.errors import InputError
from glassformer.looking.points import model_of
from glassformer.parts.attention import MultiHeadAttention
from glassformer.parts.patches import PatchEmbedding
from glassformer.parts.positions import AttentionPositions, Learned, NoPositions

if TYPE_CHECKING:
    from matplotlib.figure import Figure


MOST = 4_096  # positions


@dataclass(frozen=True)
class PositionScheme:
    """How one stack knows the order: what is added, turned or subtracted at each place, and what that is worth."""

    stack: str
    kind: str  # the name of the part: "Sinusoidal", "Learned", "Rotary", "RelativeBias", "ALiBi"
    vectors: Tensor | None  # (T, D), what is added; of rotations (T, K), the cosines of their angles
    similarity: Tensor | None  # (T, T)
    bias: Tensor | None  # (H, N), what each head adds to a score
    distances: list[int]  # N, how far behind the query the key stands; below 0: ahead of it

    def figure(self) -> Figure:
        """What the order is worth by distance: a line, or of biases one for each head."""
        from glassformer.looking.plots import tables

        return tables.scheme(self)

    @property
    def by_distance(self) -> Tensor:
        """The similarity at each distance, the mean over all places that are so far apart, (N); of biases, (H, N)."""
        if self.bias is not None:
            return self.bias
        assert self.similarity is not None  # noqa: S101  (a scheme has one or the other)
        return torch.stack([self.similarity.diagonal(-distance).mean() for distance in self.distances])


@torch.no_grad()
def position_schemes(model: Any, stack: str = "encoder", length: int = 64) -> list[PositionScheme]:
    """The schemes of one stack for the first `length` positions, or as many as a trained table has.

    None, if the stack has no scheme: recurrent layers count by reading, and without order there is nothing to know.
    """
    if not 2 <= length <= MOST:
        raise InputError(
            f"a scheme is looked at over 2 to {MOST:,} positions, not {length:,}: each is compared with all"
        )
    inside: Any = getattr(model_of(model), stack, None)
    if inside is None:
        raise InputError(f'there is no stack "{stack}" in this model')
    found = []
    if (added := _added(inside.embedding, length)) is not None:
        found.append(_of_vectors(stack, *added))
    attention = _attention(inside)
    if attention is not None and attention.positions is not None:
        found.append(_of_attention(stack, attention, length, both=stack == "encoder"))
    return found


def _added(embedding: Any, length: int) -> tuple[str, Tensor] | None:
    """What is added to embeddings at each position, (T, D), and the name of the part."""
    order, width = embedding.positions, embedding.width
    if isinstance(order, NoPositions):
        return None
    if isinstance(order, Tensor):  # patches, each of which has a trained vector
        return "Learned", order.detach()[0, :length].float().cpu()
    if isinstance(order, Learned):
        length = min(length, order.length)
    elif isinstance(embedding, PatchEmbedding):
        length = min(length, 1 + (embedding.image // embedding.patch) ** 2)
    zeros = torch.zeros(1, length, width).to(next(embedding.parameters()))
    return type(order).__name__, order(zeros, None)[0].float().cpu()


def _of_vectors(stack: str, kind: str, vectors: Tensor) -> PositionScheme:
    unit = F.normalize(vectors.double(), dim=-1)
    return PositionScheme(stack, kind, vectors, (unit @ unit.T).float(), None, list(range(len(vectors))))


def _of_attention(stack: str, attention: MultiHeadAttention, length: int, both: bool) -> PositionScheme:
    """Rotations by how alike they leave vectors, biases by what they add; `both`: a token looks both ways."""
    order: Any = attention.positions
    kind, like = type(order).__name__, next(attention.parameters())
    if type(order).rotate is not AttentionPositions.rotate:
        width = attention.head_width
        units = torch.eye(width, device=like.device)[None, None]  # (1, 1, K, K)
        places = [torch.full((width,), at, device=like.device) for at in range(length)]
        turned = torch.stack([order.rotate(units, place)[0, 0] for place in places]).double().cpu()  # (T, K, K)
        similarity = torch.einsum("ikd,jkd->ij", turned, turned) / width
        cosines = turned.diagonal(dim1=1, dim2=2)  # (T, K)
        return PositionScheme(stack, kind, cosines.float(), similarity.float(), None, list(range(length)))
    ahead = length - 1 if both else 0
    distances = list(range(-ahead, length))
    query = torch.tensor([[ahead]], device=like.device)
    keys = torch.tensor([[ahead - distance for distance in distances]], device=like.device)
    shift = max(0, -int(keys.min()))  # positions count from 0
    bias = order.bias(query + shift, keys + shift)[0, :, 0].float().cpu()  # (H, N)
    return PositionScheme(stack, kind, None, None, bias, distances)


def _attention(stack: Any) -> MultiHeadAttention | None:
    """The self-attention of a stack's first block; None: it has none."""
    for block in getattr(stack, "blocks", ()):
        for name, part in block.named_modules():
            if isinstance(part, MultiHeadAttention) and "cross" not in name:
                return part
    return None
