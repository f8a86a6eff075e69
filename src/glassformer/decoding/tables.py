"""Tables: the tensors of a search, of which some have a row for each sentence.

B sentences
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor


class Tables:
    """A dataclass of tensors; `axes` says which axis of each is for sentences (None: none) and which for steps."""

    axes: ClassVar[Mapping[str, int | None]]
    steps: ClassVar[tuple[str, ...]]  # tensors whose first axis is for steps
    sentences: list[int]

    def keep(self, rows: Tensor, sentences: list[int]) -> Self:
        """The tables of some sentences."""
        kept: dict[str, Any] = {
            name: getattr(self, name).index_select(axis, rows) for name, axis in self.axes.items() if axis is not None
        }
        return replace(self, **kept, sentences=sentences)  # type: ignore[type-var]

    def reserve(self, steps: int) -> Self:
        """The same with room for so many steps, and for as many again where there was none."""
        tables = {name: getattr(self, name) for name in self.steps}
        if all(len(table) >= steps for table in tables.values()):
            return self
        room = max(64, 2 * steps)
        grown = {n: F.pad(x, (*(0, 0) * (x.dim() - 1), 0, max(0, room - len(x)))) for n, x in tables.items()}
        return replace(self, **grown)  # type: ignore[type-var]

    def load(self, other: Self) -> None:
        """Write over the beginning of each table with another's."""
        for name in self.axes:
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine is not theirs:
                both = [slice(min(sizes)) for sizes in zip(mine.shape, theirs.shape, strict=True)]
                mine[tuple(both)].copy_(theirs[tuple(both)])


def ones(count: int, device: torch.device) -> Tensor:
    """True for each of some sentences, (B)."""
    return torch.ones(count, dtype=torch.bool, device=device)
