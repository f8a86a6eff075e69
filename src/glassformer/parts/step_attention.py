"""Attention in a decoding step on a GPU: few queries, many slots, a mask that says which slots a beam descends from.

PyTorch's fused kernels are made for many queries; for a step they are five launches each, masks and copies included.
Where Triton is installed (it comes with PyTorch's CUDA builds), a step has a kernel of its own. Before it is first used
for some sizes, it has to give what attention in the open gives, on this machine.

B sentences, k beams, H heads, G key-value heads, N slots, K head width
"""

from __future__ import annotations

import math
import warnings

import torch
from torch import Tensor

from glassformer.parts.checks import unread
from glassformer.parts.guard import guarded, usable
from glassformer.parts.masks import Mask

MOST_BEAMS = 32
WIDEST = 256  # features of a head
NEAR = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 6e-2}  # how near it has to be

_proofs: dict[tuple[object, ...], bool] = {}


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
        and _proven(query, value)
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


def _proven(query: Tensor, value: Tensor) -> bool:
    """Whether the kernel is right for queries (B, H, k, K) and values (B, G, N, K) of these sizes."""
    sizes = *query.shape[1:], value.shape[1], value.dtype, value.device
    if sizes not in _proofs:
        if unread():  # too late to try
            return False
        _proofs[sizes] = all(proof(query[:2], value[:2], own) for own in (True, False))
        if not _proofs[sizes] and usable():
            warnings.warn(f"the kernel for decoding steps is wrong for {sizes}: it is not used", stacklevel=2)
    return _proofs[sizes]


def proof(query: Tensor, value: Tensor, own: bool) -> bool:
    """Whether the kernel gives what attention in the open gives, for random numbers in the sizes of these tensors."""
    (sentences, heads, beams, width), groups, dtype, device = query.shape, value.shape[1], value.dtype, value.device
    draw, slots, filled = torch.Generator(device).manual_seed(0), 160, 130

    def random(*size: int) -> Tensor:
        return torch.randn(*size, generator=draw, device=device).to(dtype)

    q = random(sentences, beams, heads, width).transpose(1, 2)
    store = random(sentences, groups, slots, width), random(sentences, groups, slots, width)
    new = random(sentences, groups, beams, width), random(sentences, groups, beams, width)
    seen = torch.rand(sentences, beams if own else 1, slots, generator=draw, device=device) > 0.5
    seen[..., 0] = True
    keys, values = (x[:, :, :filled].clone() for x in store)
    allowed = seen[..., :filled]
    if own:
        keys, values = (torch.cat(pair, dim=2) for pair in zip((keys, values), new, strict=True))
        itself = torch.eye(beams, dtype=torch.bool, device=device).expand(sentences, -1, -1)
        allowed = torch.cat((allowed, itself), dim=2)
    mask = Mask(seen[:, None], filled=torch.full((1,), filled, device=device))
    taken = step_attention(q, store[0], store[1], mask, None, new if own else None)
    if taken is None:
        return False
    keys, values = (x.float().repeat_interleave(heads // groups, dim=1) for x in (keys, values))
    scores = (q.float() @ keys.transpose(-2, -1) / math.sqrt(width)).masked_fill(~allowed[:, None], -torch.inf)
    right = torch.allclose(taken.float(), scores.softmax(dim=-1) @ values, atol=NEAR[dtype], rtol=NEAR[dtype])
    places = slice(filled, filled + beams)
    return right and (not own or all(torch.equal(x[:, :, places], y) for x, y in zip(store, new, strict=True)))
