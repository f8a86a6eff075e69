"""Heads: what is read off the vectors that an encoder gives.

B batch, T length, D model width, C classes
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from glassformer.parts.checks import check_positive
from glassformer.parts.dropout import Dropout
from glassformer.parts.feedforward import Activation


class FirstToken(nn.Module):
    """The vector of the first token stands for the whole: BERT's [CLS], RoBERTa's <s>, ViT's class token."""

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) to (B, D)."""
        return x[:, 0]


class Transform(nn.Module):
    """norm(f(W x + b)): one more thought before the scores."""

    def __init__(self, width: int, activation: Activation, norm: nn.Module | None = None) -> None:
        super().__init__()
        check_positive(width=width)
        self.dense, self.activation = nn.Linear(width, width), activation
        self.norm = nn.Identity() if norm is None else norm

    def forward(self, x: Tensor) -> Tensor:
        """(…, D) to (…, D)."""
        return self.norm(self.activation(self.dense(x)))  # type: ignore[no-any-return]


class Pooler(nn.Module):
    """tanh(W x + b) of the first token: BERT's vector for a whole text."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.transform = FirstToken(), Transform(width, torch.tanh)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) to (B, D)."""
        return self.transform(self.first(x))  # type: ignore[no-any-return]


class Scores(nn.Module):
    """Scores of classes, for each vector by itself: W dropout(x) + b."""

    def __init__(self, width: int, classes: int, dropout: float = 0.0) -> None:
        super().__init__()
        check_positive(width=width, classes=classes)
        self.dropout, self.scores = Dropout(dropout), nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """(…, D) to logits (…, C)."""
        return self.scores(self.dropout(x))  # type: ignore[no-any-return]


class Classifier(nn.Module):
    """Scores of classes, from what a `pool` makes of the vectors: W dropout(pool(x)) + b."""

    def __init__(self, pool: nn.Module, width: int, classes: int, dropout: float = 0.0) -> None:
        super().__init__()
        check_positive(width=width, classes=classes)
        self.pool, self.dropout, self.scores = pool, Dropout(dropout), nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) to logits (B, C)."""
        return self.scores(self.dropout(self.pool(x)))  # type: ignore[no-any-return]
