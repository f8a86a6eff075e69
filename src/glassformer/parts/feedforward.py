"""Feed-forward: after the tokens have talked, each thinks for itself, with the same two or three matrices.

B batch, T length, D model width, F hidden width
"""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.parts.checks import check_positive
from glassformer.parts.dropout import Dropout
from glassformer.parts.quantised import together

Activation = Callable[[Tensor], Tensor]
Linear = Callable[..., nn.Module]  # builds a linear part: (inputs, outputs, bias=…)


def relu(x: Tensor) -> Tensor:
    """max(0, x)."""
    return F.relu(x)


def gelu(x: Tensor) -> Tensor:
    """x Φ(x), with the exact normal distribution function Φ."""
    return F.gelu(x)


def gelu_tanh(x: Tensor) -> Tensor:
    """x/2 (1 + tanh(√(2/π) (x + 0.044715 x³))): GPT-2's approximation of GELU."""
    return F.gelu(x, approximate="tanh")


def silu(x: Tensor) -> Tensor:
    """x σ(x), also called swish."""
    return F.silu(x)


class FeedForward(nn.Module):
    """expand → activation → contract: W₂ f(W₁ x + b₁) + b₂."""

    def __init__(
        self,
        width: int,
        hidden: int,
        activation: Activation = relu,
        dropout: float = 0.0,
        bias: bool = True,
        linear: Linear = nn.Linear,
    ) -> None:
        super().__init__()
        check_positive(width=width, hidden=hidden)
        self.activation = activation
        self.expand = linear(width, hidden, bias=bias)
        self.output = linear(hidden, width, bias=bias)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Each token (B, T, D) by itself, through the hidden width F and back."""
        return self.output(self.dropout(self.activation(self.expand(x))))  # type: ignore[no-any-return]


class GatedFeedForward(nn.Module):
    """W₂ (f(W_g x) ⊙ W₁ x): one matrix decides how much of the other's answer passes (T5 v1.1, Llama)."""

    def __init__(
        self,
        width: int,
        hidden: int,
        activation: Activation = silu,
        dropout: float = 0.0,
        bias: bool = False,
        linear: Linear = nn.Linear,
    ) -> None:
        super().__init__()
        check_positive(width=width, hidden=hidden)
        self.activation = activation
        self.gate = linear(width, hidden, bias=bias)
        self.expand = linear(width, hidden, bias=bias)
        self.output = linear(hidden, width, bias=bias)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Each token (B, T, D) by itself, through the gated hidden width F and back."""
        gate, expanded = together(x, self.gate, self.expand)
        return self.output(self.dropout(self.activation(gate) * expanded))  # type: ignore[no-any-return]
