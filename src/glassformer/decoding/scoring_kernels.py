"""The Triton kernel that reads logits once: the log of their softmax denominator, and the largest of each group.

`largest` says what groups are for; a group has one token of each of 32 sections of the vocabulary. Sums and maxima go
along as sections come, so that logits in 16 bits are never written down in 32.

R rows, V vocabulary, M groups
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from glassformer.decoding.largest import GROUP


@triton.jit
def _read(logits, maxima, levels, vocabulary, groups, SECTIONS: tl.constexpr, LANES: tl.constexpr):
    """One row of logits."""
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, LANES)
    top = tl.full((LANES,), float("-inf"), tl.float32)
    total = tl.zeros((LANES,), tl.float32)
    for section in range(SECTIONS):
        place = section * groups + lanes
        x = tl.load(
            logits + row * vocabulary + place, mask=(lanes < groups) & (place < vocabulary), other=float("-inf")
        )
        x = x.to(tl.float32)
        higher = tl.maximum(top, x)
        finite = tl.where(higher == float("-inf"), 0.0, higher)
        total = total * tl.exp(top - finite) + tl.exp(x - finite)
        top = higher
    tl.store(maxima + row * groups + lanes, top, mask=lanes < groups)
    highest = tl.max(top, 0)
    highest = tl.where(highest == float("-inf"), 0.0, highest)
    tl.store(levels + row, highest + tl.log(tl.sum(total * tl.exp(top - highest), 0)))


def read(logits: Tensor) -> tuple[Tensor, Tensor]:
    """The largest logit of each group (…, M), and log Σ exp of all, (…, 1), in float32; from logits (…, V)."""
    logits = logits.contiguous()
    *shape, vocabulary = logits.shape
    groups = -(-vocabulary // GROUP)
    maxima = torch.empty(*shape, groups, dtype=torch.float32, device=logits.device)
    levels = torch.empty(*shape, 1, dtype=torch.float32, device=logits.device)
    lanes = triton.next_power_of_2(groups)
    warps = 4 if lanes <= 512 else 8
    _read[(levels.numel(),)](logits, maxima, levels, vocabulary, groups, SECTIONS=GROUP, LANES=lanes, num_warps=warps)
    return maxima, levels
