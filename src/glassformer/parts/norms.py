"""Norms keep the numbers that flow through a deep model at one size; residual connections say where they stand.

B batch, T length, N tokens, D model width
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.errors import InputError
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


class BatchNorm(nn.Module):
    """y = (x - mean) / sqrt(variance + ε) * weight + bias, with statistics of each feature over the tokens of a batch.

    In use running averages stand in for them, so that a token has no batch mates. A norm whose weight is frozen uses
    these in training too, and leaves them as they are.
    """

    running_mean: Tensor
    running_variance: Tensor

    def __init__(self, width: int, epsilon: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__()
        check_positive(width=width)
        self.epsilon, self.momentum = epsilon, momentum
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.register_buffer("running_mean", torch.zeros(width))
        self.register_buffer("running_variance", torch.ones(width))

    def forward(self, x: Tensor, keep: Tensor | None = None) -> Tensor:
        """Tokens (B, T, D), normalised; `keep` (B or 1, T) is True where a token is real, without it all of them are.

        What is no real token has no part in the statistics, and becomes zeros.
        """
        if keep is None:
            return self._normalised(x.reshape(-1, x.shape[-1])).view(x.shape)  # of (N, D)
        keep = keep.expand(x.shape[:-1])
        tokens = self._normalised(x[keep])  # (N, D)
        return torch.zeros(x.shape, dtype=tokens.dtype, device=x.device).masked_scatter(keep[..., None], tokens)

    def _normalised(self, tokens: Tensor) -> Tensor:
        learning = self.training and self.weight.requires_grad
        if learning and len(tokens) < 2:
            raise InputError(f"batch norm needs at least 2 tokens to train on, not {len(tokens)}")
        running = self.running_mean, self.running_variance
        return F.batch_norm(tokens, *running, self.weight, self.bias, learning, self.momentum, self.epsilon)

    def extra_repr(self) -> str:
        return f"{len(self.weight)}, epsilon={self.epsilon}, momentum={self.momentum}"


def running_averages(model: nn.Module) -> dict[str, Tensor]:
    """The running averages of a model's batch norms by name: what a forward pass in training changes."""
    norms = {name: part for name, part in model.named_modules() if isinstance(part, BatchNorm)}
    names = ("running_mean", "running_variance")
    return {f"{path}.{name}".lstrip("."): getattr(norm, name) for path, norm in norms.items() for name in names}


# What the key was for in Glassformer 0.1, and what a recipe is told now.
_FORMER = {each: f'since Glassformer 0.2 that is model.residual = "{each}"' for each in ("pre", "post")}
_OVER_THE_BATCH = "its statistics are over all tokens of a batch, so those of later words and of padding would enter"

Make = Callable[..., nn.Module]  # of the width, or of width and epsilon
Norm = Annotated[Make, Named(layer=LayerNorm, rms=RMSNorm).refusing(**_FORMER, batch=_OVER_THE_BATCH)]
# Of models that read inputs of one length, all of each at once: no token is later than another, and none is padding.
UnpaddedNorm = Annotated[Make, Named(layer=LayerNorm, rms=RMSNorm, batch=BatchNorm).refusing(**_FORMER)]


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
