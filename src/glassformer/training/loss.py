"""The loss: how surprised the model is by the words that really came next.

Cross entropy with label smoothing ε: the wanted distribution gives 1 - ε to the right token and spreads ε evenly over
the vocabulary, so that the model is not taught to be certain.

    loss = Σ over tokens of  -(1 - ε) log p(right) - ε/V Σ over v of log p(v)

Logits of a whole batch, in float32, would be the largest thing in memory. So loss and gradient are computed together,
a chunk of tokens at a time, and padding never meets the head.

B batch, S source length, T target length, D model width, V vocabulary, N real target tokens, C tokens in a chunk
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.parts.embeddings import Head, TiedHead
from glassformer.parts.norms import PaddingAware

Chunk = Callable[[Tensor, Tensor, float], tuple[Tensor, Tensor]]
CPU_ROWS = 512  # tokens in a chunk on a CPU: more do not fit its cache, fewer make slow matrix products
STORED = 2**27  # logits in a chunk on an accelerator: large enough to keep it busy


class Predictor(Protocol):
    """A model that reads a source and the words so far: `hidden` gives the vectors (B, T, D) that `head` scores."""

    head: nn.Module

    def hidden(self, source: Tensor, target: Tensor, source_mask: Tensor | None = None) -> Tensor:
        """The vectors (B, T, D) of the target's tokens."""
        ...


def smoothed(logits: Tensor, right: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """The summed loss of logits (C, V), and its gradient by them: softmax - wanted distribution, (C, V)."""
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
            by_weight = torch.zeros_like(weight)
            by_bias = None if bias is None else torch.zeros_like(bias)
        for first in range(0, len(right), size):
            now = slice(first, min(first + size, len(right)))
            where = now if places is None else places[now]
            rows = hidden[where].to(dtype)  # (C, D)
            value, slope = chunk(F.linear(rows, table, None if bias is None else bias.to(dtype)), right[now], smoothing)
            total += value
            if learn:
                by_hidden[where] = (slope @ table).to(hidden.dtype)
                if dtype == weight.dtype:
                    by_weight.addmm_(slope.T, rows)
                else:
                    by_weight += slope.T @ rows
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
            by_weight * slope,
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
    places = None
    if tokens < mask.numel():
        places = mask.flatten().nonzero_static(size=tokens)[:, 0]  # (N)
    hidden, right = hidden.flatten(0, 1), right.flatten()  # (B * T, D), (B * T)
    right = right if places is None else right[places]  # (N)
    if isinstance(head, TiedHead):
        weight, bias = head.embedding.weight, head.bias
    elif type(head) in (Head, nn.Linear):
        weight, bias = head.weight, head.bias  # type: ignore[assignment]
    else:
        logits = head(hidden if places is None else hidden[places])  # (N, V)
        return F.cross_entropy(logits.float(), right, reduction="sum", label_smoothing=smoothing)
    return _ChunkedLoss.apply(hidden, weight, bias, places, right, smoothing, chunk)  # type: ignore[no-any-return,no-untyped-call]


class Objective(nn.Module):
    """A model and its loss as one module, so that distribution and compilation have one thing to wrap."""

    def __init__(self, model: nn.Module, smoothing: float = 0.0) -> None:
        super().__init__()
        self.model, self.smoothing = model, smoothing
        self.blocks = [block for part in model.modules() if isinstance(part, nn.ModuleList) for block in part]
        self._hidden: Callable[..., Tensor] = model.hidden  # type: ignore[assignment]
        self._chunk: Chunk = smoothed
        self._aware = any(isinstance(part, PaddingAware) for part in model.modules())

    def compile_parts(self, whole: bool = True) -> None:
        """Let PyTorch compile what takes the time, for batches of any shape.

        As a whole the model runs fastest. Where its blocks are sharded, each is compiled by itself; as they are all
        alike, the first one's code serves the others.
        """
        self._chunk = torch.compile(smoothed, dynamic=True)
        if whole:
            self._hidden = torch.compile(self._hidden, dynamic=True)
        else:
            for block in self.blocks:
                block.compile(dynamic=True)

    def forward(
        self,
        source: Tensor,
        source_mask: Tensor,
        target_in: Tensor,
        target_out: Tensor,
        target_mask: Tensor,
        tokens: int,
    ) -> Tensor:
        """The summed loss of a batch with so many real target tokens."""
        also = (target_mask,) if self._aware else ()  # nobody but a batch norm looks at the target's padding
        hidden = self._hidden(source, target_in, source_mask, *also)  # (B, T, D)
        head: nn.Module = self.model.head  # type: ignore[assignment]
        return sequence_loss(hidden, target_out, target_mask, tokens, head, self.smoothing, self._chunk)
