"""Norms keep the numbers that flow through a deep model at one size; placement says where they stand.

B batch, T length, N real tokens, D model width
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.errors import InputError
from glassformer.parts.checks import check_positive
from glassformer.parts.dropout import Dropout
from glassformer.parts.masks import Mask


class LayerNorm(nn.Module):
    """y = (x - mean(x)) / sqrt(var(x) + ε) * weight + bias, over the width of each token by itself."""

    def __init__(self, width: int, epsilon: float = 1e-5, bias: bool = True) -> None:
        super().__init__()
        check_positive(width=width)
        self.epsilon = epsilon
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """The tokens (B, T, D), each with mean 0 and variance 1 before weight and bias."""
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.epsilon)


class RMSNorm(nn.Module):
    """y = x / sqrt(mean(x²) + ε) * weight: a layer norm that neither centres nor shifts (T5, Llama)."""

    def __init__(self, width: int, epsilon: float = 1e-6) -> None:
        super().__init__()
        check_positive(width=width)
        self.epsilon = epsilon
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """The tokens (B, T, D), each with root mean square 1 before the weight."""
        return F.rms_norm(x, self.weight.shape, self.weight, self.epsilon)


class Scale(nn.Module):
    """y = x · factor: T5 shrinks what its tied head reads."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        """The vectors (B, T, D), all of them longer or shorter."""
        return x * self.factor


class BatchNorm(nn.Module):
    """Batch norm for sequences: statistics of each feature over all tokens of the batch.

    It is here to be compared with. Without `keep` it is naive: padding enters the statistics, so a sentence's result
    depends on how much its batch mates were padded. With `keep` only real tokens count; in a model, `PaddingAware`
    brings it along.
    """

    running_mean: Tensor
    running_variance: Tensor

    def __init__(self, width: int, epsilon: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__()
        check_positive(width=width)
        self.epsilon, self.momentum = epsilon, momentum
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.register_buffer("running_mean", torch.zeros(width))
        self.register_buffer("running_variance", torch.ones(width))

    def forward(self, x: Tensor, keep: Tensor | None = None) -> Tensor:
        """The tokens (B, T, D), normalised over the batch in training, by running statistics otherwise.

        `keep` (B or 1, T) is True where a token is real.
        """
        if self.training:
            tokens = x.flatten(0, 1) if keep is None else x[keep.expand(x.shape[:2])]  # (N, D)
            if len(tokens) < 2:
                raise InputError(f"batch norm needs at least 2 tokens to train on, not {len(tokens)}")
            mean, variance = tokens.mean(dim=0), tokens.var(dim=0, unbiased=False)
            with torch.no_grad():
                self.running_mean.lerp_(mean, self.momentum)
                self.running_variance.lerp_(variance * len(tokens) / (len(tokens) - 1), self.momentum)
        else:
            mean, variance = self.running_mean, self.running_variance
        return (x - mean) * torch.rsqrt(variance + self.epsilon) * self.weight + self.bias


class PaddingAware(nn.Module):
    """A batch norm that hears from its encoder or decoder, before each pass, which tokens are real.

    `transformer(…, norm=lambda width: PaddingAware(BatchNorm(width)))`
    """

    def __init__(self, norm: BatchNorm) -> None:
        super().__init__()
        self.norm = norm
        self.real: Tensor | None = None  # (B or 1, T)

    def forward(self, x: Tensor) -> Tensor:
        """The tokens (B, T, D), normalised by the real ones among them."""
        return self.norm(x, self.real)  # type: ignore[no-any-return]


def tell(norms: list[PaddingAware], mask: Mask | None) -> None:
    """Before a pass with this mask: tell norms, if there are any, which tokens are real."""
    if norms:
        real = None if mask is None else mask.real
        for norm in norms:
            norm.real = real


class PreNorm(nn.Module):
    """x + dropout(part(norm(x))): the clean path from input to output stays free, so deep stacks train easily."""

    final_norm = True  # what leaves the last block was never normalised: the stack does it

    def __init__(self, part: nn.Module, norm: nn.Module, dropout: float = 0.0) -> None:
        super().__init__()
        self.part, self.norm, self.dropout = part, norm, Dropout(dropout)

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """The residual stream (B, T, D) with what the part adds to it."""
        return x + self.dropout(self.part(self.norm(x), *args, **kwargs))  # type: ignore[no-any-return]


class PostNorm(nn.Module):
    """norm(x + dropout(part(x))): the placement of "Attention Is All You Need", BERT and BART."""

    final_norm = False

    def __init__(self, part: nn.Module, norm: nn.Module, dropout: float = 0.0) -> None:
        super().__init__()
        self.part, self.norm, self.dropout = part, norm, Dropout(dropout)

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """The normalised sum (B, T, D) of the stream and what the part adds to it."""
        return self.norm(x + self.dropout(self.part(x, *args, **kwargs)))  # type: ignore[no-any-return]


Placement = type[PreNorm] | type[PostNorm]
