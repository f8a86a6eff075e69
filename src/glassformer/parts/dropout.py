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
    """Zeroes each number with probability `share` in training, and scales the rest so that their mean stays."""

    def __init__(self, share: float = 0.0) -> None:
        super().__init__()
        check_fraction(dropout=share)
        self.share = share

    def forward(self, x: Tensor) -> Tensor:
        """The numbers (B, T, D), some of them 0 in training; just as they are otherwise."""
        if not self.training or not self.share:
            return x
        if x.device.type != "cpu" or torch.compiler.is_compiling():
            return F.dropout(x, self.share)
        return x * _survivors(x, self.share)

    def extra_repr(self) -> str:
        """Its share, for print(model)."""
        return f"{self.share}"


def _survivors(x: Tensor, share: float) -> Tensor:
    """0 or 1 / (1 - share) for each number of x.

    A CPU draws one number after the other, and PyTorch draws a whole one for each place. Here one of 64 bits serves
    four places: a sixth of the time, for a share that is exact to 1/65536.
    """
    draws = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    lots = draws.view(torch.int16)[: x.numel()].view(x.shape)
    return (lots >= round(share * 2**16) - 2**15).to(x.dtype).mul_(1 / (1 - share))
