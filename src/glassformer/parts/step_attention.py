"""Attention in a decoding step on a GPU: few queries, many slots, a mask that says which slots a beam descends from.

PyTorch's fused kernels are made for many queries; for a step they are five launches each, masks and copies included.
Where Triton is installed (it comes with PyTorch's CUDA builds), a step has a kernel of its own.

B sentences, k beams, H heads, G key-value heads, N slots, K head width
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from glassformer.parts.guard import guarded, usable
from glassformer.parts.masks import Mask

MOST_BEAMS = 32
WIDEST = 256  # features of a head


def suits_step(query: Tensor, value: Tensor, mask: Mask | None) -> bool:
    """Whether the kernel may take over: a step in fixed memory, in 16 or 32 bits on a GPU, without a window."""
    return (
        mask is not None
        and mask.filled is not None
        and mask.window is None
        and query.is_cuda
        and query.shape[2] <= MOST_BEAMS
        and query.shape[3] <= WIDEST
        and query.dtype == value.dtype
        and value.dtype in (torch.float16, torch.bfloat16, torch.float32)
        and query.stride(3) == 1
        and usable()
    )


def step_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Mask, scale: float | None, new: tuple[Tensor, Tensor] | None = None
) -> Tensor | None:
    """Attention of (B, H, k, K) over the filled slots of (B, G, N, K), as `fused_attention`.

    Each beam also attends to its own `new` key and value, (B, G, k, K) each, which are written into the next slots.
    None: this machine cannot compile the kernel.
    """
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    seen, filled = mask.allowed, mask.filled
    if seen is None or filled is None:
        return None

    def attend() -> Tensor:
        from glassformer.parts import step_kernels

        return step_kernels.attend(query, key, value, seen[:, 0], filled, scale, new)

    return guarded(attend)
