"""Attention: each token looks at the others, finds what matters to it, and takes it in.

    attention(Q, K, V) = softmax(Q Kᵀ / √d) V

What we look for is the query, what the others have is the key, what they give when it matches is the value.

B batch, T query length, S key length, D model width, H heads, G key-value heads, K head width
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.errors import ConfigurationError, InputError
from glassformer.parts.cache import Cache, KeyValues
from glassformer.parts.checks import check_fraction, check_positive, check_width
from glassformer.parts.feedforward import Linear
from glassformer.parts.inference import together
from glassformer.parts.masks import Mask
from glassformer.parts.positions import AttentionPositions, Position, as_tensor
from glassformer.parts.short_attention import short_attention, suits


def dot_similarity(query: Tensor, key: Tensor) -> Tensor:
    """q · k for every query and key, (…, T, S): grows with the vectors' lengths and with their width."""
    return query @ key.transpose(-2, -1)


def scaled_dot_similarity(query: Tensor, key: Tensor) -> Tensor:
    """q · k / √d for every query and key, (…, T, S): as the dot product, but its variance does not grow with d."""
    return dot_similarity(query, key) / math.sqrt(query.shape[-1])


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Mask | None = None,
    bias: Tensor | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Attention in the open: what each query takes in (…, T, K), and its weights over the keys (…, T, S).

    A query that may attend to nothing takes in nothing: zeros.
    """
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    if query.dim() == 4 and key.shape[1] != query.shape[1]:  # groups of query heads share a key-value head
        key, value = (x.repeat_interleave(query.shape[1] // key.shape[1], dim=1) for x in (key, value))
    scores = dot_similarity(query, key) * scale  # (…, T, S)
    if bias is not None:
        scores = scores + bias
    allowed = None if mask is None else mask.table(query.shape[-2], key.shape[-2], query.device)
    if allowed is not None and allowed.dim() > scores.dim():
        raise InputError(f"a mask with {allowed.dim()} dimensions needs queries (B, H, T, K), not {tuple(query.shape)}")
    if allowed is None:
        weights = scores.softmax(dim=-1)
    else:
        weights = scores.masked_fill(~allowed, -torch.inf).softmax(dim=-1)
        weights = weights.masked_fill(~allowed.any(dim=-1, keepdim=True), 0.0)
    return F.dropout(weights, dropout) @ value, weights


def fused_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Mask | None = None,
    bias: Tensor | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """The same by a fused kernel, which never writes the weights down: (B, H, T, K)."""
    mask = Mask() if mask is None else mask
    if bias is None and not dropout and mask.window is None and suits(query, key, value, mask.allowed):
        return short_attention(query, key, value, mask.allowed, scale, mask.causal)
    table, empty, allowed, causal = bias, None, None, False
    if mask.only_causal and bias is None and query.shape[2] == key.shape[2]:
        causal = True
    else:
        allowed = mask.table(query.shape[2], key.shape[2], query.device)
    if allowed is not None:
        if query.device.type != "cpu":  # elsewhere kernels differ in what they give to a row with nothing to attend to
            empty = ~allowed.any(dim=-1, keepdim=True)
            allowed = allowed | empty
        table = allowed if bias is None else bias.masked_fill(~allowed, -torch.inf)
    grouped = key.shape[1] != query.shape[1]
    taken = F.scaled_dot_product_attention(query, key, value, table, dropout, causal, scale=scale, enable_gqa=grouped)
    return taken if empty is None else taken.masked_fill(empty, 0.0)


class MultiHeadAttention(nn.Module):
    """Several attentions side by side, each over its own projection of the tokens, joined by one more projection.

    Self-attention is `attention(x)`, masked self-attention `attention(x, mask=causal())`, cross-attention
    `attention(x, memory)`. With fewer `key_value_heads` than heads, groups of query heads share keys and values.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        key_value_heads: int | None = None,
        head_width: int | None = None,
        memory_width: int | None = None,
        bias: bool = True,
        dropout: float = 0.0,
        scale: float | None = None,
        positions: AttentionPositions | None = None,
        query_norm: nn.Module | None = None,
        key_norm: nn.Module | None = None,
        linear: Linear = nn.Linear,
    ) -> None:
        super().__init__()
        check_positive(width=width, heads=heads)
        check_fraction(dropout=dropout)
        if head_width is None and width % heads:
            raise ConfigurationError(
                f"width {width} does not divide into {heads} heads: change one of them, or give head_width"
            )
        key_value_heads = heads if key_value_heads is None else key_value_heads
        head_width = width // heads if head_width is None else head_width
        memory_width = width if memory_width is None else memory_width
        check_positive(key_value_heads=key_value_heads, head_width=head_width, memory_width=memory_width)
        if heads % key_value_heads:
            raise ConfigurationError(f"{heads} heads do not divide into groups for {key_value_heads} key-value heads")
        if positions is not None and not hasattr(positions, "rotate"):
            raise ConfigurationError(
                f"{type(positions).__name__} is added to embeddings: pass it to the embedding part"
            )
        if positions is not None:
            positions.check(heads, head_width)
        self.width, self.memory_width, self.head_width = width, memory_width, head_width
        self.heads, self.key_value_heads, self.scale = heads, key_value_heads, scale
        self.query = linear(width, heads * head_width, bias=bias)
        self.key = linear(memory_width, key_value_heads * head_width, bias=bias)
        self.value = linear(memory_width, key_value_heads * head_width, bias=bias)
        self.output = linear(heads * head_width, width, bias=bias)
        self.query_norm = nn.Identity() if query_norm is None else query_norm
        self.key_norm = nn.Identity() if key_norm is None else key_norm
        self.positions = positions
        self.dropout = dropout
        self.observe: Callable[[Tensor], None] | None = None  # set while recording: is handed the weights (B, H, T, S)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "observe": None}

    def project(self, memory: Tensor) -> KeyValues:
        """Keys and values of a memory (B, S, D), (B, G, S, K) each: computed once, attended to many times."""
        check_width(memory, self.memory_width, "the memory")
        return self._pair(*together(memory, self.key, self.value))

    def forward(
        self,
        x: Tensor,
        memory: Tensor | KeyValues | None = None,
        mask: Mask | None = None,
        cache: Cache | None = None,
        position: Position = None,
    ) -> Tensor:
        """What each token of x (B, T, D) takes in from the memory, or from x itself: (B, T, D).

        The memory is given as vectors (B, S, D) or as what `project` made of them. A cache holds the keys and values
        of earlier tokens, and takes in those of x. `position` says where the tokens of x stand.
        """
        check_width(x, self.width, "the input")
        if memory is None:
            query, *pair = together(x, self.query, self.key, self.value)
            key, value = self._pair(*pair)
        else:
            query = self.query(x)
            key, value = memory if isinstance(memory, KeyValues) else self.project(memory)
        query = self.query_norm(self._split(query))  # (B, H, T, K)
        if len(key) != len(query):
            raise InputError(f"the memory has {len(key)} sentences, but the input has {len(query)}")
        key_position = position if memory is None else None
        if self.positions is not None:
            query, key = self.positions.rotate(query, position), self.positions.rotate(key, key_position)
        key_positions = as_tensor(key_position, key.shape[2], key.device)
        if cache is not None:
            key, value, key_positions = cache.append(key, value, key_positions)
            mask = mask and mask.near(as_tensor(position, x.shape[1], x.device), key_positions)
        bias = None
        if self.positions is not None:
            bias = self.positions.bias(as_tensor(position, x.shape[1], x.device), key_positions)  # (B, H, T, S)
        dropout = self.dropout if self.training else 0.0
        if self.observe is None:
            taken = fused_attention(query, key, value, mask, bias, self.scale, dropout)
        else:
            taken, weights = attention(query, key, value, mask, bias, self.scale, dropout)
            self.observe(weights)
        return self.output(taken.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]  # (B, T, D)

    def _pair(self, key: Tensor, value: Tensor) -> KeyValues:
        return KeyValues(self.key_norm(self._split(key)), self._split(value))

    def _split(self, x: Tensor) -> Tensor:
        """Heads apart: (B, T, H * K) to (B, H, T, K)."""
        return x.reshape(*x.shape[:2], -1, self.head_width).transpose(1, 2)
