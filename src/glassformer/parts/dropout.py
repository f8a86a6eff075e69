"""Dropout: while learning, let some of the numbers fail, so that none is relied on alone.

    y = x · m / (1 - p),  m = 0 with probability p, else 1

B batch, T length, D model width
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.parts.checks import check_fraction


class Dropout(nn.Module):
    """Zeroes each number with probability `rate` in training, and scales the rest so that their mean stays."""

    def __init__(self, rate: float = 0.0) -> None:
        super().__init__()
        check_fraction(dropout=rate)
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or not self.rate:
            return x
        if x.device.type != "cpu" or torch.compiler.is_compiling():
            return F.dropout(x, self.rate)
        return x * _survivors(x, self.rate)

    def extra_repr(self) -> str:
        return f"{self.rate}"


def _survivors(x: Tensor, rate: float) -> Tensor:
    """0 or 1 / (1 - rate) for each number of x.

    A CPU draws one number after the other, and PyTorch draws a whole one for each element. Here one of 64 bits serves
    four elements: a sixth of the time, for a rate that is exact to 1/65536.
    """
    draws = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    lots = draws.view(torch.int16)[: x.numel()].view(x.shape)
    return (lots >= round(rate * 2**16) - 2**15).to(x.dtype).mul_(1 / (1 - rate))
