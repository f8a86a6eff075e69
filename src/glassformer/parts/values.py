"""Values: numbers over time as a sentence. Each step of a series becomes a token, and numbers are read off the last.

B batch, T steps, C columns, D model width, N numbers
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from glassformer.errors import InputError
from glassformer.parts.checks import check_positive, readable
from glassformer.parts.dropout import Dropout
from glassformer.parts.embeddings import placed
from glassformer.parts.linear import Linear
from glassformer.parts.observing import Axes, Observer, axes
from glassformer.parts.positions import EmbeddingPositions, NoPositions, Position


class ValueEmbedding(nn.Module):
    """W [(x - mean) / deviation, missing] + b for each step, plus its position, then dropout.

    A missing value, NaN, is read as the mean, and a second input says that it is missing. `mean` and `deviation` are
    those of the training data, or 0 and 1; they are kept with the weights but not trained.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(
        self, columns: int, width: int, positions: EmbeddingPositions | None = None, dropout: float = 0.0
    ) -> None:
        super().__init__()
        check_positive(columns=columns, width=width)
        self.columns, self.width = columns, width
        self.register_buffer("mean", torch.zeros(columns))
        self.register_buffer("deviation", torch.ones(columns))
        self.projection = Linear(2 * columns, width)
        self.positions = NoPositions() if positions is None else positions
        self.dropout = Dropout(dropout)

    def reads(self) -> dict[str, Axes]:
        """What passes before anything is embedded."""
        return {"values": axes(token=None, column=self.columns)}

    def length(self, values: Tensor) -> int:
        """How many vectors each series becomes: T of values (B, T, C)."""
        return values.shape[1]

    def check(self, values: Tensor, what: str = "values", anywhere: bool = False) -> None:
        """Refuse what is no table of numbers of these columns."""
        if values.dim() != 3 or values.shape[2] != self.columns or not values.numel():
            raise InputError(
                f"{what} must have the shape (batch, steps, {self.columns} columns), not {tuple(values.shape)}"
            )
        if not values.is_floating_point():
            raise InputError(f"{what} must hold numbers with a fraction, not {values.dtype}")
        if readable(values, anywhere) and bool(values.isinf().any()):
            raise InputError(f"{what} holds an infinite number: a missing value is NaN")

    def forward(self, values: Tensor, position: Position = None, observe: Observer | None = None) -> Tensor:
        """Values (B, T, C), NaN where one is missing, to vectors (B, T, D)."""
        self.check(values)
        values = values if observe is None else observe("values", values)
        standard = ((values - self.mean) / self.deviation).nan_to_num(nan=0.0)  # (B, T, C)
        both = torch.cat((standard, values.isnan().to(standard.dtype)), dim=-1)  # (B, T, 2 C)
        x = self.projection(both.to(self.projection.weight.dtype))  # (B, T, D)
        return self.dropout(placed(x, self.positions, position, observe))  # type: ignore[no-any-return]


class LastStep(nn.Module):
    """The vector of the last step stands for the whole, (B, T, D) to (B, D): only it has seen all, whoever reads."""

    def forward(self, x: Tensor) -> Tensor:
        return x[:, -1]


class NumberHead(nn.Module):
    """(W dropout(pool(x)) + b) · deviation + mean: numbers (B, N) of vectors (B, T, D), in the units of the data.

    `mean` and `deviation` of each number are those of the training data, or 0 and 1; they are not trained.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, pool: nn.Module | None, width: int, numbers: int, dropout: float = 0.0) -> None:
        super().__init__()
        check_positive(width=width, numbers=numbers)
        self.pool = nn.Identity() if pool is None else pool
        self.dropout, self.scores = Dropout(dropout), Linear(width, numbers)
        self.register_buffer("mean", torch.zeros(numbers))
        self.register_buffer("deviation", torch.ones(numbers))

    def forward(self, x: Tensor) -> Tensor:
        return self.scores(self.dropout(self.pool(x))) * self.deviation + self.mean  # type: ignore[no-any-return]
