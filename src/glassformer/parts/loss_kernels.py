"""The loss of logits and its gradient on a GPU, in Triton: each program takes one token.

PyTorch's own operations would write the probabilities of all words down several times; these read the logits two or
three times and write the gradient over them.

C tokens in a chunk, V vocabulary
"""

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _level(start, vocabulary, BLOCK: tl.constexpr):
    """The log of the softmax's denominator for one token, and the sum of its logits."""
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
    return top + tl.log(total), summed


@triton.jit
def _smoothed(logits, right, losses, vocabulary, smoothing, IGNORED: tl.constexpr, BLOCK: tl.constexpr):
    """The loss of one token, and the gradient by its logits, which takes their place."""
    row = tl.program_id(0).to(tl.int64)
    start, wanted = logits + row * vocabulary, tl.load(right + row)
    of_right = tl.load(start + tl.maximum(wanted, 0)).to(tl.float32)  # before any of them is written over
    level, summed = _level(start, vocabulary, BLOCK)
    spread, counts = smoothing / vocabulary, wanted != IGNORED
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


@triton.jit
def _consistent(
    logits, right, losses, tokens, vocabulary, smoothing, weight, IGNORED: tl.constexpr, BLOCK: tl.constexpr
):
    """The loss of one token after two passes, and the gradient by its logits of both, which takes their place.

    By a logit of p, the divergence Σ (p - q) log p/q has the gradient p (log p/q - KL(p, q)) + p - q.
    """
    row = tl.program_id(0).to(tl.int64)
    one, two = logits + row * vocabulary, logits + (tokens + row) * vocabulary
    wanted = tl.load(right + row)
    of_one = tl.load(one + tl.maximum(wanted, 0)).to(tl.float32)  # before any of them is written over
    of_two = tl.load(two + tl.maximum(wanted, 0)).to(tl.float32)
    level_one, sum_one = _level(one, vocabulary, BLOCK)
    level_two, sum_two = _level(two, vocabulary, BLOCK)
    forth, back = tl.zeros((), tl.float32), tl.zeros((), tl.float32)
    for first in range(0, vocabulary, BLOCK):
        columns = first + tl.arange(0, BLOCK)
        there = columns < vocabulary
        log_p = tl.load(one + columns, mask=there, other=0.0).to(tl.float32) - level_one
        log_q = tl.load(two + columns, mask=there, other=0.0).to(tl.float32) - level_two
        ratio = tl.where(there, log_p - log_q, 0.0)
        forth += tl.sum(tl.exp(log_p) * ratio, 0)
        back -= tl.sum(tl.exp(log_q) * ratio, 0)
    spread, counts = smoothing / vocabulary, wanted != IGNORED
    of_right, of_all = of_one + of_two - level_one - level_two, sum_one + sum_two - vocabulary * (level_one + level_two)
    loss = ((smoothing - 1) * of_right - spread * of_all) / 2 + weight / 4 * (forth + back)
    tl.store(losses + row, tl.where(counts, loss, 0.0))
    for first in range(0, vocabulary, BLOCK):
        columns = first + tl.arange(0, BLOCK)
        there = columns < vocabulary
        log_p = tl.load(one + columns, mask=there, other=float("-inf")).to(tl.float32) - level_one
        log_q = tl.load(two + columns, mask=there, other=float("-inf")).to(tl.float32) - level_two
        p, q, ratio = tl.exp(log_p), tl.exp(log_q), tl.where(there, log_p - log_q, 0.0)
        target = spread + tl.where(columns == wanted, 1 - smoothing, 0.0)
        by_one = (p - target) / 2 + weight / 4 * (p * (ratio - forth) + p - q)
        by_two = (q - target) / 2 + weight / 4 * (q - p - q * (ratio + back))
        kind = logits.dtype.element_ty
        tl.store(one + columns, tl.where(counts, by_one, 0.0).to(kind), mask=there)
        tl.store(two + columns, tl.where(counts, by_two, 0.0).to(kind), mask=there)


def consistent(logits: Tensor, right: Tensor, smoothing: float, weight: float, ignored: int) -> tuple[Tensor, Tensor]:
    """The summed loss of `losses.consistent_loss`; its gradient is written over the logits (2, C, V)."""
    logits, tokens, words = logits.contiguous(), logits.shape[1], logits.shape[2]
    losses = torch.empty(tokens, device=logits.device, dtype=torch.float32)
    block = min(2048, triton.next_power_of_2(words))
    if tokens:
        _consistent[(tokens,)](
            logits, right, losses, tokens, words, smoothing, weight, ignored, block, num_warps=8 if block > 512 else 4
        )
    return losses.sum(), logits
