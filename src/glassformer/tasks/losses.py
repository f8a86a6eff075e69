"""Losses: how surprised a model is by what was right, summed, so that any number of batches make one step.

Cross entropy with label smoothing ε: the wanted distribution gives 1 - ε to the right token and spreads ε evenly over
the vocabulary, so that the model is not taught to be certain.

    loss = Σ over tokens of  -(1 - ε) log p(right) - ε/V Σ over v of log p(v)

Logits of a whole batch, in float32, would be the largest thing in memory. So loss and gradient are computed together,
a chunk of tokens at a time, and padding never meets the head.

B batch, T target length, D model width, V vocabulary or classes, N real target tokens, C tokens in a chunk
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.parts import cpu_kernels
from glassformer.parts.embeddings import Head, TiedHead
from glassformer.parts.linear import Linear, linear
from glassformer.parts.short_attention import TRITON

Chunk = Callable[[Tensor, Tensor, float], tuple[Tensor, Tensor]]
CPU_ROWS = 512  # tokens in a chunk on a CPU: more do not fit its cache, fewer make slow matrix products
IGNORED = -1  # as the right token: a place that does not count
STORED = 2**27  # logits in a chunk on an accelerator: large enough to keep it busy


def smoothed(logits: Tensor, right: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """The summed loss of logits (C, V), and its gradient by them: softmax - wanted distribution, (C, V).

    The logits are used up. Rows whose right token is IGNORED have neither loss nor gradient.
    """
    if not torch.compiler.is_compiling():
        if logits.is_cuda and TRITON:
            from glassformer.parts import loss_kernels

            return loss_kernels.smoothed(logits, right, smoothing, IGNORED)
        if cpu_kernels.suits_loss(logits):
            return cpu_kernels.smoothed(logits, right, smoothing)
        if logits.device.type == "cpu" and bool((right == IGNORED).any()):
            return _of_some(logits, right, smoothing)
    spread = smoothing / logits.shape[-1]
    log_p = F.log_softmax(logits, dim=-1, dtype=torch.float32)  # (C, V)
    of_right = log_p.gather(1, right[:, None])  # (C, 1)
    total = (smoothing - 1) * of_right.sum()
    if smoothing:
        total = total - spread * log_p.sum()
    by_right = of_right.exp() - (1 - smoothing + spread)
    slope = log_p.exp_()
    if smoothing:
        slope.sub_(spread)
    slope = slope.to(logits.dtype)
    return total, slope.scatter_(1, right[:, None], by_right.to(logits.dtype))


def _of_some(logits: Tensor, right: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """`smoothed` of the rows that count."""
    counts, slope = right != IGNORED, torch.zeros_like(logits)
    total, slope[counts] = smoothed(logits[counts], right[counts], smoothing)
    return total, slope


class _ChunkedLoss(torch.autograd.Function):
    """Head and loss in one, whose gradient is ready as soon as its value is."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        places: Tensor | None,
        right: Tensor,
        smoothing: float,
        chunk: Chunk,
    ) -> Tensor:
        """The summed loss of `right` (N) after hidden (B * T, D), N of whose rows, at `places`, are real."""
        kind = weight.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else weight.dtype
        size = CPU_ROWS if kind == "cpu" else max(CPU_ROWS, STORED // len(weight))
        table, learn = weight.to(dtype), any(ctx.needs_input_grad)
        ctx.shape = hidden.shape
        total = weight.new_zeros((), dtype=torch.float32)
        if learn:
            by_hidden = torch.empty_like(hidden) if places is None else torch.zeros_like(hidden)
            by_weight = torch.zeros_like(weight) if ctx.needs_input_grad[1] else None  # a frozen head costs no more
            by_bias = torch.zeros_like(bias) if bias is not None and ctx.needs_input_grad[2] else None
        for first in range(0, len(right), size):
            now = slice(first, min(first + size, len(right)))
            where = now if places is None else places[now]
            rows = hidden[where].to(dtype)  # (C, D)
            value, slope = chunk(linear(rows, table, None if bias is None else bias.to(dtype)), right[now], smoothing)
            total += value
            if learn:
                by_hidden[where] = linear(slope, table.T).to(hidden.dtype)
                if by_weight is not None:
                    by_weight += linear(slope.T, rows.T)
                if by_bias is not None:
                    by_bias += slope.sum(dim=0, dtype=by_bias.dtype)
        if learn:
            ctx.save_for_backward(by_hidden, by_weight, by_bias)
        return total

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        """What `forward` has found, times the slope of whatever was made of the loss."""
        by_hidden, by_weight, by_bias = ctx.saved_tensors
        return (
            by_hidden * slope,
            None if by_weight is None else by_weight * slope,
            None if by_bias is None else by_bias * slope,
            None,
            None,
            None,
            None,
        )


def sequence_loss(
    hidden: Tensor,
    right: Tensor,
    mask: Tensor,
    tokens: int,
    head: nn.Module,
    smoothing: float = 0.0,
    chunk: Chunk = smoothed,
) -> Tensor:
    """The loss of `right` (B, T), summed over the `tokens` places where the mask (B, T) is True.

    `tokens` is the number of these places: known beforehand, so that an accelerator need not be waited for.
    """
    places = real_places(mask, tokens)
    hidden, right = hidden.flatten(0, 1), right.flatten()  # (B * T, D), (B * T)
    right = right if places is None else right[places]  # (N)
    if isinstance(head, TiedHead):
        weight, bias = head.embedding.weight, head.bias
    elif type(head) in (Head, Linear, nn.Linear):
        weight, bias = head.weight, head.bias  # type: ignore[assignment]
    else:
        logits = head(hidden if places is None else hidden[places])  # (N, V)
        return F.cross_entropy(logits.float(), right, reduction="sum", label_smoothing=smoothing, ignore_index=IGNORED)
    return _ChunkedLoss.apply(hidden, weight, bias, places, right, smoothing, chunk)  # type: ignore[no-any-return,no-untyped-call]


@torch.no_grad()
def row_losses(hidden: Tensor, right: Tensor, mask: Tensor, head: Callable[[Tensor], Tensor]) -> Tensor:
    """-log p of `right` (B, T) where the mask (B, T) is True, summed over each row: (B), in float64 on the CPU."""
    rows, places = mask.nonzero(as_tuple=True)  # (N), (N)
    found = [
        F.cross_entropy(head(hidden[some, at]).float(), right[some, at], reduction="none")
        for some, at in zip(torch.split(rows, CPU_ROWS), torch.split(places, CPU_ROWS), strict=True)
    ]
    return torch.bincount(rows.cpu(), torch.cat(found).cpu().double(), len(hidden))


def real_places(mask: Tensor, tokens: int) -> Tensor | None:
    """Where a flat mask is True, (N); None if that is everywhere."""
    return None if tokens == mask.numel() else mask.flatten().nonzero_static(size=tokens)[:, 0]


class _ConsistentLoss(torch.autograd.Function):
    """What comes after the head in `consistent_loss`, by one kernel for value and gradient."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, right: Tensor, smoothing: float, weight: float) -> Tensor:
        """The summed loss of `right` (N) under logits (2, N, V), which are used up."""
        from glassformer.parts import loss_kernels

        total, slope = loss_kernels.consistent(logits, right, smoothing, weight, IGNORED)
        ctx.save_for_backward(slope)
        return total

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        """What `forward` has found, times the slope of whatever was made of the loss."""
        (by_logits,) = ctx.saved_tensors
        return by_logits * slope, None, None, None


def consistent_loss(
    passes: Tensor, right: Tensor, mask: Tensor, tokens: int, head: nn.Module, smoothing: float, weight: float
) -> Tensor:
    """The loss of `right` (B, T) after two passes (2 B, T, D) with different dropout, and their divergence: R-Drop.

    ½ (loss of p + loss of q) + weight / 4 · (KL(p, q) + KL(q, p)),  where the divergences sum to Σ (p - q) log p/q
    """
    places, right = real_places(mask, tokens), right.flatten()
    passes = passes.view(2, -1, passes.shape[-1])  # (2, B * T, D)
    if places is not None:
        passes, right = passes[:, places], right[places]  # (2, N, D), (N)
    logits = head(passes)  # (2, N, V)
    if logits.is_cuda and TRITON:
        return _ConsistentLoss.apply(logits, right, smoothing, weight)  # type: ignore[no-any-return,no-untyped-call]
    log_p = F.log_softmax(logits, dim=-1, dtype=torch.float32)  # (2, N, V)
    of_right = log_p.gather(2, right.clamp_min(0).expand(2, -1)[..., None])[..., 0]  # (2, N)
    losses = -(1 - smoothing) * of_right - smoothing * log_p.mean(dim=-1)  # (2, N)
    p, q = log_p.exp()
    divergences = ((p - q) * (log_p[0] - log_p[1])).sum(dim=-1)  # (N)
    each: Tensor = losses.sum(dim=0) / 2 + weight / 4 * divergences
    return each.masked_fill(right == IGNORED, 0.0).sum()


def class_loss(logits: Tensor, right: Tensor, smoothing: float = 0.0) -> Tensor:
    """The loss of the right classes (B) under logits (B, V), summed."""
    return F.cross_entropy(logits.float(), right, reduction="sum", label_smoothing=smoothing)


def span_loss(logits: Tensor, mask: Tensor, right: Tensor, smoothing: float = 0.0) -> Tensor:
    """The loss of positions (B, 2), summed, under logits (B, T, 2) of the tokens where the mask (B, T) is True.

    Label smoothing spreads its part evenly over the real tokens of a row.
    """
    real = mask[:, :, None]  # (B, T, 1)
    log_p = F.log_softmax(logits.float().masked_fill(~real, -torch.inf), dim=1)  # (B, T, 2)
    of_right = log_p.gather(1, right[:, None]).sum()
    if not smoothing:
        return -of_right
    spread = (log_p.masked_fill(~real, 0.0) / real.sum(dim=1, keepdim=True)).sum()
    return -(1 - smoothing) * of_right - smoothing * spread
