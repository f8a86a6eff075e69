"""Attention over short sentences on a GPU, for training.

PyTorch's fused kernels are made for long texts: their tiles of 64 or 128 tokens are mostly air around a sentence of 20.
Where Triton is installed (it comes with PyTorch's CUDA builds), sentences get kernels of their own.

B batch, T query length, S key length, H heads, K head width
"""

from __future__ import annotations

import importlib.util
import math
from typing import Any

import torch
from torch import Tensor

LONGEST = 256  # tokens; PyTorch's own kernels are better at more
WIDEST = 128  # features of a head
TRITON = importlib.util.find_spec("triton") is not None


def suits(query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None) -> bool:
    """Whether these kernels may take over: short, in 16 bits on a GPU, learning, and masked by key or not at all."""
    return (
        query.is_cuda
        and torch.is_grad_enabled()
        and value.dtype in (torch.float16, torch.bfloat16)
        and max(query.shape[2], key.shape[2]) <= LONGEST
        and query.shape[3] <= WIDEST
        and query.shape[1] == key.shape[1]
        and (allowed is None or allowed.shape[:3] == (len(query), 1, 1))
        and TRITON
    )


def short_attention(
    query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None, scale: float | None, causal: bool
) -> Tensor:
    """Attention of (B, H, T, K) over (B, H, S, K), as `fused_attention`; `allowed` is (B, 1, 1, S)."""
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    keep = None if allowed is None else allowed[:, 0, 0].contiguous()  # (B, S)
    query, key, value = (x.transpose(1, 2).to(value.dtype).contiguous() for x in (query, key, value))  # (B, T, H, K)
    taken: Tensor = _attend(query, key, value, keep, scale, causal)[0]
    return taken.transpose(1, 2)


@torch.library.custom_op("glassformer::short_attention", mutates_args=(), device_types="cuda")
def _attend(
    query: Tensor, key: Tensor, value: Tensor, keep: Tensor | None, scale: float, causal: bool
) -> tuple[Tensor, Tensor]:
    from glassformer.parts import short_kernels

    return short_kernels.forward(query, key, value, keep, scale, causal)


@torch.library.custom_op("glassformer::short_attention_backward", mutates_args=(), device_types="cuda")
def _gradients(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    keep: Tensor | None,
    output: Tensor,
    level: Tensor,
    slope: Tensor,
    scale: float,
    causal: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    from glassformer.parts import short_kernels

    return short_kernels.backward(query, key, value, keep, output, level, slope.contiguous(), scale, causal)


@_attend.register_fake
def _(
    query: Tensor, key: Tensor, value: Tensor, keep: Tensor | None, scale: float, causal: bool
) -> tuple[Tensor, Tensor]:
    """The shapes alone, for torch.compile."""
    sentences, queries, heads, _ = query.shape
    return torch.empty_like(query), query.new_empty(sentences, heads, queries, dtype=torch.float32)


@_gradients.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    """The shapes alone, for torch.compile."""
    return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    query, key, value, keep, ctx.scale, ctx.causal = inputs
    ctx.save_for_backward(query, key, value, keep, *output)
    ctx.mark_non_differentiable(output[1])


def _back(ctx: Any, slope: Tensor, _: Any) -> tuple[Tensor | None, ...]:
    return (*_gradients(*ctx.saved_tensors, slope, ctx.scale, ctx.causal), None, None, None)


_attend.register_autograd(_back, setup_context=_remember)
