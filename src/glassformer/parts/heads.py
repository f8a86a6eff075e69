"""Heads: what is read off the vectors that an encoder gives.

B batch, T length, D model width, C classes
"""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor, nn

from glassformer.parts.checks import check_positive
from glassformer.parts.dropout import Dropout
from glassformer.parts.feedforward import Activation
from glassformer.parts.linear import Linear


class FirstToken(nn.Module):
    """The vector of the first token stands for the whole, (B, T, D) to (B, D): [CLS], <s>, ViT's class token."""

    def forward(self, x: Tensor) -> Tensor:
        return x[:, 0]


class Transform(nn.Module):
    """norm(f(W x + b)): one more thought before the scores, (…, D) to (…, D)."""

    def __init__(self, width: int, activation: Activation, norm: nn.Module | None = None) -> None:
        super().__init__()
        check_positive(width=width)
        self.dense, self.activation = Linear(width, width), activation
        self.norm = nn.Identity() if norm is None else norm

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.activation(self.dense(x)))  # type: ignore[no-any-return]


def pooler_part(width: int) -> nn.Module:
    """tanh(W x + b) of the first token, (B, T, D) to (B, D): BERT's vector for a whole text."""
    return nn.Sequential(OrderedDict(first=FirstToken(), transform=Transform(width, torch.tanh)))


class Classifier(nn.Module):
    """W dropout(pool(x)) + b, (B, T, D) to logits (B, C); without a `pool`, of each vector by itself, (B, T, C)."""

    def __init__(self, pool: nn.Module | None, width: int, classes: int, dropout: float = 0.0) -> None:
        super().__init__()
        check_positive(width=width, classes=classes)
        self.pool = nn.Identity() if pool is None else pool
        self.dropout, self.scores = Dropout(dropout), Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.scores(self.dropout(self.pool(x)))  # type: ignore[no-any-return]
