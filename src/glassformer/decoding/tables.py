"""Tables: the tensors of a search, of which some have a row for each sentence.

B sentences, k beams, H length of the longest history
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from glassformer.decoding.history import NONE


class Tables:
    """A dataclass of tensors; `axes` says which axis of each is for sentences (None: none) and which for steps."""

    axes: ClassVar[Mapping[str, int | None]]
    steps: ClassVar[tuple[str, ...]]  # tensors whose first axis is for steps
    sentences: list[int]
    history: Tensor  # (B, k, H): what rules that look back read, the latest last

    def _past(self, history: Tensor, steps: int) -> Tensor:
        """A history (B, k, H) with room for so many steps more than there was, before what it has."""
        return F.pad(history, (steps, 0), value=NONE) if history.shape[-1] and steps > 0 else history

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
        added = room - len(next(iter(tables.values())))
        grown = {name: F.pad(x, (*(0, 0) * (x.dim() - 1), 0, added)) for name, x in tables.items()}
        return replace(self, **grown, history=self._past(self.history, added))  # type: ignore[type-var]

    def load(self, other: Self) -> None:
        """Write over the beginning of each table with another's; those of one type at once: on a GPU, one kernel."""
        pairs: dict[torch.dtype, list[tuple[Tensor, Tensor]]] = {}
        for name in self.axes:
            mine, theirs = getattr(self, name), getattr(other, name)
            if name == "history" and mine.shape != theirs.shape:
                mine.fill_(NONE)
                width = min(mine.shape[2], theirs.shape[2])
                mine[: len(theirs), :, mine.shape[2] - width :].copy_(theirs[..., theirs.shape[2] - width :])
            elif mine is not theirs and mine.numel():
                both = tuple(slice(min(sizes)) for sizes in zip(mine.shape, theirs.shape, strict=True))
                pairs.setdefault(mine.dtype, []).append((mine[both], theirs[both]))
        for some in pairs.values():
            torch._foreach_copy_([mine for mine, _ in some], [theirs for _, theirs in some])


def empty_history(like: Tables, tokens: Tensor, steps: int) -> Tensor:
    """Histories for tokens (B, k), with room for so many steps and for what the other histories hold; or none."""
    held = like.history.shape[-1]
    room = steps * tokens.shape[1] + 1 if held else 0  # as many as there are slots: a prompt has slots, too
    return tokens.new_full((*tokens.shape, room), NONE)
