"""Attention: each token looks at the others, finds what matters to it, and takes it in.

    attention(Q, K, V) = softmax(Q Kᵀ / √d) V

What we look for is the query, what the others have is the key, what they give when it matches is the value.

B batch, T query length, S key length, D model width, H heads, G key-value heads, K head width
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.errors import ConfigurationError, InputError
from glassformer.parts import cpu_kernels
from glassformer.parts.cache import Cache, KeyValues
from glassformer.parts.checks import check_fraction, check_positive, check_width
from glassformer.parts.fixed_cache import FixedCache
from glassformer.parts.inference import together
from glassformer.parts.linear import Linear, MakeLinear
from glassformer.parts.masks import Mask
from glassformer.parts.observing import Axes, Observable, Observer, axes
from glassformer.parts.positions import AttentionPositions, Position, as_tensor
from glassformer.parts.short_attention import fits, joint, joint_attention, short_attention, suits
from glassformer.parts.similarity import Similarity, scaled_dot_similarity
from glassformer.parts.step_attention import step_attention, suits_step

SHORT = 128  # tokens, of which PyTorch's fused kernel makes less than one tile


def simple_self_attention(
    x: Tensor, similarity: Similarity = scaled_dot_similarity, mask: Mask | None = None
) -> tuple[Tensor, Tensor]:
    """Self-attention without parameters: Q, K and V are the tokens (…, T, D) themselves.

    It gives the tokens in context (…, T, D), and the weights (…, T, T) with which each took in the others. Nothing in
    it can be learned: `MultiHeadAttention` has the matrices that can.
    """
    weights = attention_weights(similarity(x, x), mask)
    return attend(weights, x), weights


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
    weights = attention_weights(attention_scores(query, key, bias, scale), mask)
    return attend(weights, value, dropout), weights


def attention_scores(query: Tensor, key: Tensor, bias: Tensor | None = None, scale: float | None = None) -> Tensor:
    """How well each key suits each query, (…, T, S), before the mask and the softmax."""
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = query @ _for_each_head(key, query).transpose(-2, -1) * scale
    return scores if bias is None else scores + bias


def attention_weights(scores: Tensor, mask: Mask | None = None) -> Tensor:
    """The softmax of scores (…, T, S) over the keys that each query may attend to; 0 where there is none."""
    queries, keys = scores.shape[-2:]
    allowed = None if mask is None else mask.table(queries, keys, scores.device)
    if allowed is None:
        return scores.softmax(dim=-1)
    if allowed.dim() > scores.dim():
        raise InputError(f"a mask with {allowed.dim()} dimensions needs scores (B, H, T, S), not {tuple(scores.shape)}")
    weights = scores.masked_fill(~allowed, -torch.inf).softmax(dim=-1)
    return weights.masked_fill(~allowed.any(dim=-1, keepdim=True), 0.0)


def attend(weights: Tensor, value: Tensor, dropout: float = 0.0) -> Tensor:
    """The values (…, S, K) in the mixture of each row of weights (…, T, S): (…, T, K)."""
    return F.dropout(weights, dropout) @ _for_each_head(value, weights)


def _for_each_head(x: Tensor, query: Tensor) -> Tensor:
    """Keys or values for as many heads as there are queries: groups of query heads share a key-value head."""
    if query.dim() < 4 or x.shape[1] == query.shape[1]:
        return x
    return x.repeat_interleave(query.shape[1] // x.shape[1], dim=1)


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
    if bias is None and not dropout:
        if suits(query, key, value, mask):
            return short_attention(query, key, value, mask, scale)
        if cpu_kernels.suits_beams(query, key, value, mask):
            return cpu_kernels.attend(query, key, value, mask.allowed, scale)
    if _is_faster_in_the_open(query, key):
        return attention(query, key, value, mask, bias, scale, dropout)[0].to(query.dtype)
    table, empty, allowed, causal = bias, None, None, False
    if mask.added is not None and not mask.causal and mask.window is None and mask.spans is None:
        table = mask.added if bias is None else bias + mask.added
    elif mask.only_causal and bias is None and query.shape[2] == key.shape[2]:
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


def _is_faster_in_the_open(query: Tensor, key: Tensor) -> bool:
    """Whether slopes are to be found on a CPU in 16 bits, where PyTorch's fused kernel takes three times as long."""
    learns = torch.is_grad_enabled() and (query.requires_grad or key.requires_grad)
    short = max(query.shape[2], key.shape[2]) <= SHORT
    return learns and short and query.is_cpu and query.dtype == torch.bfloat16 and not torch.compiler.is_compiling()


class MultiHeadAttention(Observable):
    """Several attentions side by side, each over its own projection of the tokens, joined by one more projection.

    Self-attention is `attention(x)`, masked self-attention `attention(x, mask=causal())`, cross-attention
    `attention(x, memory)`. With fewer `key_value_heads` than heads, groups of query heads share keys and values.
    A `scale` of scores replaces that of the `similarity`.
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
        similarity: Similarity = scaled_dot_similarity,
        positions: AttentionPositions | None = None,
        query_norm: nn.Module | None = None,
        key_norm: nn.Module | None = None,
        linear: MakeLinear = Linear,
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
        self.heads, self.key_value_heads = heads, key_value_heads
        self.scale = similarity.scale if scale is None else scale
        self.query = linear(width, heads * head_width, bias=bias)
        self.key = linear(memory_width, key_value_heads * head_width, bias=bias)
        self.value = linear(memory_width, key_value_heads * head_width, bias=bias)
        self.output = linear(heads * head_width, width, bias=bias)
        self.query_norm, self.key_norm = similarity.after(query_norm), similarity.after(key_norm)
        self.positions = positions
        self.dropout = dropout

    def points(self) -> dict[str, Axes]:
        """Queries and keys are as they are compared, rotated where positions rotate; scores are before the mask.

        `heads` is what each head takes in, before `output` joins them.
        """
        vectors = axes(head=self.heads, token=None, feature=self.head_width)
        pair = axes(head=self.key_value_heads, token=None, feature=self.head_width)
        table = axes(head=self.heads, token=None, key=None)
        return {
            "queries": vectors,
            "keys": pair,
            "values": pair,
            "scores": table,
            "weights": table,
            "heads": vectors,
            "output": axes(token=None, feature=self.width),
        }

    def project(self, memory: Tensor) -> KeyValues:
        """Keys and values of a memory (B, S, D), (B, G, S, K) each: computed once, attended to many times."""
        check_width(memory, self.memory_width, "the memory")
        key, value = together(memory, self.key, self.value)
        return self._pair(key, value, None)

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
        if cache is None and not isinstance(memory, KeyValues) and self._joins(x, memory, mask or Mask()):
            return self.output(self._joined(x, memory, mask or Mask()).flatten(2))  # type: ignore[no-any-return]
        if memory is None:
            query, key, value = together(x, self.query, self.key, self.value)
            key, value = self._pair(key, value, position)
        else:
            query = self.query(x)
            key, value = memory if isinstance(memory, KeyValues) else self.project(memory)
        query = self.query_norm(self._split(query))  # (B, H, T, K)
        if len(key) != len(query):
            raise InputError(f"the memory has {len(key)} sentences, but the input has {len(query)}")
        if self.positions is not None:
            query = self.positions.rotate(query, position)
        query = self.seen("queries", query)
        stepped = self._step(query, key, value, mask, cache)
        if stepped is not None:
            return self.output(stepped.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]
        key_positions = as_tensor(position if memory is None else None, key.shape[2], key.device)
        if cache is not None:
            key, value, key_positions = cache.append(key, value, key_positions)
            mask = mask and mask.near(as_tensor(position, x.shape[1], x.device), key_positions)
        bias = None
        if self.positions is not None:
            bias = self.positions.bias(as_tensor(position, x.shape[1], x.device), key_positions)  # (B, H, T, S)
        dropout = self.dropout if self.training else 0.0
        taken = fused_attention(query, key, value, mask, bias, self.scale, dropout)
        if self.observe is not None and self.observe.wants("scores", "weights"):
            scores = attention_scores(query, key, bias, self.scale)
            taken = _observed(taken, scores, value, mask, dropout, self.observe)
        taken = self.seen("heads", taken)
        return self.seen("output", self.output(taken.transpose(1, 2).flatten(2)))  # (B, T, D)

    def _joins(self, x: Tensor, memory: Tensor | None, mask: Mask) -> bool:
        """Whether nothing comes between the products and a kernel that takes queries, keys and values side by side."""
        kind, keys = x.device.type, x if memory is None else memory
        casts = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)  # not on the meta device
        dtype = torch.get_autocast_dtype(kind) if casts else x.dtype
        return (
            fits(x, dtype, len(x), x.shape[1], keys.shape[1], self.head_width, mask)
            and len(x) == len(keys)
            and self.heads == self.key_value_heads
            and self.positions is None
            and self.observe is None
            and not (self.dropout and self.training)
            and all(isinstance(part, nn.Identity) for part in (self.query_norm, self.key_norm))
            and all(type(part) is Linear for part in (self.query, self.key, self.value))
        )

    def _joined(self, x: Tensor, memory: Tensor | None, mask: Mask) -> Tensor:
        """What each token takes in, (B, T, H, K), by one product of each input."""
        if memory is None:
            parts = [joint(x, (self.query, self.key, self.value), self.heads)]
        else:
            check_width(memory, self.memory_width, "the memory")
            parts = [joint(x, (self.query,), self.heads), joint(memory, (self.key, self.value), self.heads)]
        return joint_attention(parts, mask, self.scale)

    def _step(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Mask | None, cache: Cache | FixedCache | None
    ) -> Tensor | None:
        """What each query takes in, (B, H, T, K), in a decoding step in fixed memory, if there is a kernel for it."""
        if mask is None or mask.filled is None or self.observe is not None:
            return None
        biased = self.positions is not None and type(self.positions).bias is not AttentionPositions.bias
        if biased or not suits_step(query, value, mask):
            return None
        if isinstance(cache, FixedCache):
            return step_attention(query, *cache.stores(key, value), mask, self.scale, (key, value))
        return step_attention(query, key, value, mask, self.scale)

    def _pair(self, key: Tensor, value: Tensor, position: Position) -> KeyValues:
        """Keys and values by head, at their position: (B, G, S, K) each."""
        key = self.key_norm(self._split(key))
        if self.positions is not None:
            key = self.positions.rotate(key, position)
        return KeyValues(self.seen("keys", key), self.seen("values", self._split(value)))

    def _split(self, x: Tensor) -> Tensor:
        """Heads apart: (B, T, H * K) to (B, H, T, K)."""
        return x.reshape(*x.shape[:2], -1, self.head_width).transpose(1, 2)


def _observed(
    taken: Tensor, scores: Tensor, value: Tensor, mask: Mask | None, dropout: float, observe: Observer
) -> Tensor:
    """What each query takes in (B, H, T, K), after its scores and weights (B, H, T, S) have been observed.

    Only rows of weights that an observer changed are computed in the open: all others keep what the fused kernel gave
    them, `taken`, to the bit.
    """
    weights = attention_weights(scores, mask)
    new_scores = observe("scores", scores)
    new = observe("weights", weights if new_scores is scores else attention_weights(new_scores, mask))
    if new is weights:
        return taken
    changed = (new != weights).any(dim=-1, keepdim=True)  # (B, H, T, 1)
    return torch.where(changed, attend(new, value, dropout).to(taken.dtype), taken)
