"""Attention in a decoding step on a GPU: few queries, many slots, a mask that says which slots a beam descends from.

PyTorch's fused kernels are made for many queries; for a step they are five launches each, masks and copies included.
Where Triton is installed (it comes with PyTorch's CUDA builds), a step has a kernel of its own. Before it is first used
for some sizes, it has to give what the formula gives, on this machine (`proof`); otherwise PyTorch's kernels are used.

B sentences, k beams, H heads, G key-value heads, N slots, K head width
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from glassformer.parts.checks import unread
from glassformer.parts.guard import guarded, usable
from glassformer.parts.masks import Mask

MOST_BEAMS = 32
WIDEST = 256  # features of a head
NEAR = {torch.float32: 3e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}  # how near it has to be

_proofs: dict[tuple[object, ...], bool] = {}


def suits_step(query: Tensor, value: Tensor, mask: Mask | None) -> bool:
    """Whether the kernel may take over: a step in fixed memory, in 16 or 32 bits on a GPU, masked by a table alone."""
    return (
        mask is not None
        and mask.filled is not None
        and mask.window is None
        and not mask.causal
        and query.is_cuda
        and query.device.index == torch.cuda.current_device()  # where Triton launches
        and query.shape[2] <= MOST_BEAMS
        and query.shape[3] <= WIDEST
        and query.dtype == value.dtype
        and value.dtype in NEAR
        and usable()
        and _proven(query, value)
    )


def step_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Mask, scale: float | None, new: tuple[Tensor, Tensor] | None = None
) -> Tensor | None:
    """Attention of (B, H, k, K) over the filled slots of (B, G, N, K), as `fused_attention`.

    Each beam also attends to its own `new` key and value, (B, G, k, K) each, which are written into the next slots.
    None: the kernel does not serve these tensors, and nothing was written.
    """
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    seen, filled = mask.allowed, mask.filled
    if seen is None or filled is None or not (key.is_contiguous() and value.is_contiguous()):
        return None

    def attend() -> Tensor:
        from glassformer.parts import step_kernels

        return step_kernels.attend(query, key, value, seen[:, 0], filled, scale, new)

    return guarded(attend)


def _proven(query: Tensor, value: Tensor) -> bool:
    """Whether the kernel is right for queries (B, H, k, K) and values (B, G, N, K) of these sizes; tried once."""
    sizes = *query.shape[1:], value.shape[1], value.dtype, value.device
    if sizes not in _proofs:
        if unread():  # a capture has begun: too late to try
            return False
        _proofs[sizes] = all(proof(query, value, own, filled) for own, filled in ((True, 130), (True, 0), (False, 77)))
    return _proofs[sizes]


def proof(query: Tensor, value: Tensor, own: bool, filled: int) -> bool:
    """Whether the kernel gives what the formula gives in float64, for random numbers in the sizes of these tensors."""
    (_, heads, beams, width), groups, dtype, device = query.shape, value.shape[1], value.dtype, value.device
    draw, sentences = torch.Generator(device).manual_seed(0), 3
    slots = 32 * ((filled + beams) // 32 + 1)  # a multiple of 32, as of captured steps: Triton compiles others anew

    def random(*size: int) -> Tensor:
        return torch.randn(*size, generator=draw, device=device).to(dtype)

    q = random(sentences, beams, heads, width).transpose(1, 2)
    store = [random(sentences, groups, slots, width) for _ in range(2)]
    new = [random(sentences, beams, groups, width).transpose(1, 2) for _ in range(2)]
    seen = torch.rand(sentences, beams if own else 1, slots, generator=draw, device=device) > 0.5
    seen[..., 0] = True
    before, places = [x.clone() for x in store], slice(filled, filled + beams)
    mask = Mask(seen[:, None], filled=torch.full((1,), filled, device=device))
    taken = step_attention(q, store[0], store[1], mask, None, (new[0], new[1]) if own else None)
    if taken is None:
        return False
    allowed = seen[..., :filled]
    if own:
        for x, y in zip(before, new, strict=True):
            x[:, :, places] = y
        itself = torch.eye(beams, dtype=torch.bool, device=device).expand(sentences, -1, -1)
        allowed = torch.cat((allowed, itself), dim=2)
    keys, values = (x[:, :, : allowed.shape[2]].double().repeat_interleave(heads // groups, dim=1) for x in before)
    scores = (q.double() @ keys.mT / math.sqrt(width)).masked_fill(~allowed[:, None], -torch.inf)
    right = torch.allclose(taken.double(), scores.softmax(dim=-1) @ values, atol=NEAR[dtype], rtol=NEAR[dtype])
    return right and all(torch.equal(x, y) for x, y in zip(store, before, strict=True))  # and no other slot is written
