"""Norms keep the numbers that flow through a deep model at one size; residual connections say where they stand.

B batch, T length, D model width
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from torch import Tensor, nn

from glassformer.parts.checks import check_positive
from glassformer.parts.dropout import Dropout
from glassformer.parts.named import Named


class LayerNorm(nn.LayerNorm):
    """y = (x - mean(x)) / sqrt(var(x) + ε) * weight + bias, over the width of each token (B, T, D) by itself."""

    def __init__(self, width: int, epsilon: float = 1e-5, bias: bool = True) -> None:
        check_positive(width=width)
        super().__init__(width, epsilon, bias=bias)
        self.epsilon = epsilon


class RMSNorm(nn.RMSNorm):
    """y = x / sqrt(mean(x²) + ε) * weight: a layer norm that neither centres nor shifts (T5, Llama)."""

    def __init__(self, width: int, epsilon: float = 1e-6) -> None:
        check_positive(width=width)
        super().__init__(width, epsilon)
        self.epsilon = epsilon


Norm = Annotated[Callable[..., nn.Module], Named(layer=LayerNorm, rms=RMSNorm)]  # of the width, or width and epsilon


class Scale(nn.Module):
    """y = x · factor: T5 shrinks what its tied head reads."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


class ResidualBranch(nn.Module):
    """A part, its norm and its dropout, beside the residual stream (B, T, D)."""

    final_norm: bool  # whether the stack has to normalise what leaves its last block

    def __init__(self, part: nn.Module, norm: nn.Module, dropout: float = 0.0) -> None:
        super().__init__()
        self.part, self.norm, self.dropout = part, norm, Dropout(dropout)


class PreNorm(ResidualBranch):
    """x + dropout(part(norm(x))): the clean path from input to output stays free, so deep stacks train easily."""

    final_norm = True

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return x + self.dropout(self.part(self.norm(x), *args, **kwargs))  # type: ignore[no-any-return]


class PostNorm(ResidualBranch):
    """norm(x + dropout(part(x))): as in "Attention Is All You Need", BERT and BART."""

    final_norm = False

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return self.norm(x + self.dropout(self.part(x, *args, **kwargs)))  # type: ignore[no-any-return]


Residual = Annotated[type[ResidualBranch], Named(pre=PreNorm, post=PostNorm)]
