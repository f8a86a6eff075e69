"""The loss of logits and its gradient on a GPU, in Triton: each program takes one token.

PyTorch's own operations would write the probabilities of all words down several times; these read the logits twice
and write the gradient over them.

C tokens in a chunk, V vocabulary
"""

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _smoothed(logits, right, losses, vocabulary, smoothing, IGNORED: tl.constexpr, BLOCK: tl.constexpr):
    """The loss of one token, and the gradient by its logits, which takes their place."""
    row = tl.program_id(0).to(tl.int64)
    start, wanted = logits + row * vocabulary, tl.load(right + row)
    of_right = tl.load(start + tl.maximum(wanted, 0)).to(tl.float32)  # before any of them is written over
    top = tl.full((), float("-inf"), tl.float32)
    total, summed = tl.zeros((), tl.float32), tl.zeros((), tl.float32)
    for first in range(0, vocabulary, BLOCK):
        columns = first + tl.arange(0, BLOCK)
        there = columns < vocabulary
        x = tl.load(start + columns, mask=there, other=float("-inf")).to(tl.float32)
        higher = tl.maximum(top, tl.max(x, 0))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(x - higher), 0)
        summed += tl.sum(tl.where(there, x, 0.0), 0)
        top = higher
    level, spread, counts = top + tl.log(total), smoothing / vocabulary, wanted != IGNORED
    loss = (smoothing - 1) * (of_right - level) - spread * (summed - vocabulary * level)
    tl.store(losses + row, tl.where(counts, loss, 0.0))
    for first in range(0, vocabulary, BLOCK):
        columns = first + tl.arange(0, BLOCK)
        there = columns < vocabulary
        x = tl.load(start + columns, mask=there, other=float("-inf")).to(tl.float32)
        slope = tl.exp(x - level) - spread - tl.where(columns == wanted, 1 - smoothing, 0.0)
        tl.store(start + columns, tl.where(counts, slope, 0.0).to(logits.dtype.element_ty), mask=there)


def smoothed(logits: Tensor, right: Tensor, smoothing: float, ignored: int) -> tuple[Tensor, Tensor]:
    """As `losses.smoothed`; the gradient is written over the logits (C, V)."""
    logits, losses = logits.contiguous(), torch.empty(len(logits), device=logits.device, dtype=torch.float32)
    block = min(4096, triton.next_power_of_2(logits.shape[1]))
    if len(logits):
        _smoothed[(len(logits),)](
            logits, right, losses, logits.shape[1], smoothing, ignored, block, num_warps=8 if block > 1024 else 4
        )
    return losses.sum(), logits
