"""Feed-forward: after attention has mixed the tokens, each is transformed by itself, by the same two or three matrices.

B batch, T length, D model width, F hidden width
"""

from collections.abc import Callable
from typing import Annotated

import torch.nn.functional as F
from torch import Tensor

from glassformer.parts.checks import check_positive
from glassformer.parts.dropout import Dropout
from glassformer.parts.inference import together
from glassformer.parts.linear import Linear, MakeLinear
from glassformer.parts.named import Named
from glassformer.parts.observing import Axes, Observable, axes

Function = Callable[[Tensor], Tensor]

relu: Function = F.relu  # max(0, x)
gelu: Function = F.gelu  # x Φ(x), with the exact normal distribution function Φ
silu: Function = F.silu  # x σ(x), also called swish


def gelu_tanh(x: Tensor) -> Tensor:
    """x/2 (1 + tanh(√(2/π) (x + 0.044715 x³))): GPT-2's approximation of GELU."""
    return F.gelu(x, approximate="tanh")


Activation = Annotated[Function, Named(relu=relu, gelu=gelu, gelu_tanh=gelu_tanh, silu=silu)]


class FeedForward(Observable):
    """expand → activation → contract: W₂ f(W₁ x + b₁) + b₂, through the hidden width F and back."""

    def __init__(
        self,
        width: int,
        hidden: int,
        activation: Activation = relu,
        dropout: float = 0.0,
        bias: bool = True,
        linear: MakeLinear = Linear,
    ) -> None:
        super().__init__()
        check_positive(width=width, hidden=hidden)
        self.activation, self.width, self.hidden = activation, width, hidden
        self.expand = linear(width, hidden, bias=bias)
        self.output = linear(hidden, width, bias=bias)
        self.dropout = Dropout(dropout)

    def points(self) -> dict[str, Axes]:
        """The activations, and what is added to the residual stream."""
        return _points(self.width, self.hidden)

    def forward(self, x: Tensor) -> Tensor:
        """Each token (B, T, D) by itself."""
        hidden = self.seen("hidden", self.dropout(self.activation(self.expand(x))))  # (B, T, F)
        return self.seen("output", self.output(hidden))


class GatedFeedForward(Observable):
    """W₂ (f(W_g x) ⊙ W₁ x): one matrix decides how much of the other's answer passes (T5 v1.1, Llama)."""

    def __init__(
        self,
        width: int,
        hidden: int,
        activation: Activation = silu,
        dropout: float = 0.0,
        bias: bool = False,
        linear: MakeLinear = Linear,
    ) -> None:
        super().__init__()
        check_positive(width=width, hidden=hidden)
        self.activation, self.width, self.hidden = activation, width, hidden
        self.gate = linear(width, hidden, bias=bias)
        self.expand = linear(width, hidden, bias=bias)
        self.output = linear(hidden, width, bias=bias)
        self.dropout = Dropout(dropout)

    def points(self) -> dict[str, Axes]:
        """The activations, and what is added to the residual stream."""
        return _points(self.width, self.hidden)

    def forward(self, x: Tensor) -> Tensor:
        """Each token (B, T, D) by itself."""
        gate, expanded = together(x, self.gate, self.expand)
        hidden = self.seen("hidden", self.dropout(self.activation(gate) * expanded))  # (B, T, F)
        return self.seen("output", self.output(hidden))


def _points(width: int, hidden: int) -> dict[str, Axes]:
    return {"hidden": axes(token=None, feature=hidden), "output": axes(token=None, feature=width)}
