"""Attention over short sentences on a GPU, for training.

PyTorch's fused kernels are made for long texts: their tiles of 64 or 128 tokens are mostly air around a sentence of 20.
Where Triton is installed (it comes with PyTorch's CUDA builds), sentences get kernels of their own.

B batch, T query length, S key length, D model width, H heads, K head width, J parts (queries, keys, values) in a tensor
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from glassformer.parts.linear import linear
from glassformer.parts.masks import Mask

LONGEST = 256  # tokens; PyTorch's own kernels are better at more
WIDEST = 128  # features of a head
TRITON = importlib.util.find_spec("triton") is not None


def suits(query: Tensor, key: Tensor, value: Tensor, mask: Mask) -> bool:
    """Whether these kernels may take over from queries (B, H, T, K), keys and values (B, H, S, K)."""
    sizes = len(query), query.shape[2], key.shape[2], query.shape[3]
    return query.shape[1] == key.shape[1] and fits(query, value.dtype, *sizes, mask)


def fits(x: Tensor, dtype: torch.dtype, rows: int, queries: int, keys: int, width: int, mask: Mask) -> bool:
    """Whether attention is short, in 16 bits on a GPU, learning, and masked by key, by sentence or not at all."""
    allowed, spans = mask.allowed, mask.spans
    return (
        x.is_cuda
        and torch.is_grad_enabled()
        and dtype in (torch.float16, torch.bfloat16)
        and (max(queries, keys) if spans is None else spans.longest) <= LONGEST
        and width <= WIDEST
        and mask.window is None
        and (allowed is None or (spans is None and allowed.shape[:3] == (rows, 1, 1)))
        and TRITON
    )


def short_attention(query: Tensor, key: Tensor, value: Tensor, mask: Mask, scale: float | None) -> Tensor:
    """Attention of (B, H, T, K) over (B, H, S, K), as `fused_attention`; its mask is one that `suits`."""
    parts = (x.transpose(1, 2).to(value.dtype).contiguous()[:, :, None] for x in (query, key, value))
    return joint_attention([*parts], mask, scale).transpose(1, 2)


def joint_attention(parts: list[Tensor], mask: Mask, scale: float | None) -> Tensor:
    """The same from vectors (B, T, J, H, K) that hold queries, keys and values, in this order: (B, T, H, K).

    Either all in one tensor, or keys and values in a second one, or each in its own.
    """
    scale = 1 / math.sqrt(parts[0].shape[-1]) if scale is None else scale
    keep = None if mask.allowed is None else mask.allowed[:, 0, 0].contiguous()  # (B, S)
    starts: tuple[Tensor, Tensor] | tuple[None, None] = (None, None)
    usual = max(part.shape[1] for part in parts)
    if mask.spans is not None:
        starts, usual = (mask.spans.queries.starts, mask.spans.keys.starts), mask.spans.usual
    taken: Tensor = _attend(parts, keep, *starts, usual, scale, mask.causal)[0]
    return taken


def joint(x: Tensor, parts: Sequence[Any], heads: int) -> Tensor:
    """Several linear parts of vectors (B, T, D) by one product, by head: (B, T, J, H, K)."""
    bias = None if parts[0].bias is None else torch.cat([part.bias for part in parts])
    y = linear(x, torch.cat([part.weight for part in parts]), bias)
    return y.view(*x.shape[:2], len(parts), heads, -1)


def separate(parts: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values (B, T, H, K), where they are."""
    query, key, value = (part[:, :, number] for part in parts for number in range(part.shape[2]))
    return query, key, value


@torch.library.custom_op("glassformer::short_attention", mutates_args=(), device_types="cuda")
def _attend(
    parts: Sequence[Tensor],
    keep: Tensor | None,
    query_starts: Tensor | None,
    key_starts: Tensor | None,
    usual: int,
    scale: float,
    causal: bool,
) -> tuple[Tensor, Tensor]:
    from glassformer.parts import short_kernels

    parts = [part.contiguous() for part in parts]
    return short_kernels.forward(*separate(parts), keep, query_starts, key_starts, usual, scale, causal)


@torch.library.custom_op("glassformer::short_attention_backward", mutates_args=(), device_types="cuda")
def _gradients(
    parts: Sequence[Tensor],
    keep: Tensor | None,
    query_starts: Tensor | None,
    key_starts: Tensor | None,
    output: Tensor,
    level: Tensor,
    slope: Tensor,
    usual: int,
    scale: float,
    causal: bool,
) -> list[Tensor]:
    from glassformer.parts import short_kernels

    parts = [part.contiguous() for part in parts]
    gradients = [part.new_empty(part.shape) for part in parts]
    how = keep, query_starts, key_starts, usual, scale, causal
    short_kernels.backward(separate(parts), separate(gradients), output, level, slope.contiguous(), *how)
    return gradients


@_attend.register_fake
def _(parts: Sequence[Tensor], *_: Any) -> tuple[Tensor, Tensor]:
    """The shapes alone, for torch.compile."""
    first = parts[0]
    rows, queries, _joined, heads, width = first.shape
    level = first.new_empty(heads, rows * queries, dtype=torch.float32)
    return first.new_empty(rows, queries, heads, width), level


@_gradients.register_fake
def _(parts: Sequence[Tensor], *_: Any) -> list[Tensor]:
    """The shapes alone, for torch.compile."""
    return [part.new_empty(part.shape) for part in parts]


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    parts, *tensors, ctx.usual, ctx.scale, ctx.causal = inputs
    ctx.save_for_backward(*parts, *tensors, *output)
    ctx.parts = len(parts)
    ctx.mark_non_differentiable(output[1])


def _back(ctx: Any, slope: Tensor, _: Any) -> tuple[list[Tensor] | None, ...]:
    parts, others = ctx.saved_tensors[: ctx.parts], ctx.saved_tensors[ctx.parts :]
    found = _gradients(list(parts), *others, slope, ctx.usual, ctx.scale, ctx.causal)
    return found, *(None,) * 6


_attend.register_autograd(_back, setup_context=_remember)
