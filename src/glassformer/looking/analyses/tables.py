"""What analyses give back: numbers with labels on their axes, and the sentences for a trace that lacks something.

L layers, H heads, T tokens that look, S tokens that are looked at, R rows, C columns
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from glassformer.errors import InputError
from glassformer.looking.points import find
from glassformer.looking.trace import Trace, optional

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Grid:
    """Numbers with labels on two axes."""

    values: Tensor  # (R, C)
    rows: list[str]
    columns: list[str]

    def figure(self, title: str = "") -> Figure:
        """A map of the numbers."""
        from glassformer.looking.plots import grids

        return grids.grid(self.values, self.rows, self.columns, title)

    def pandas(self) -> Any:
        """The numbers as a DataFrame, with the labels as index and columns."""
        return frame(self.values, self.rows, self.columns)


@dataclass(frozen=True)
class HeadScores:
    """A number for each head, and where it is a mean over tokens, the number for each token."""

    values: Tensor  # (L, H)
    points: list[str]  # L, the names of the weights
    heads: list[int]  # H
    by_token: Tensor | None = None  # (L, H, T)
    tokens: list[str] | None = None  # T

    @property
    def highest(self) -> tuple[str, int]:
        """The head with the largest number: its point and its number."""
        return self._at(int(self.values.argmax()))

    @property
    def lowest(self) -> tuple[str, int]:
        """The head with the smallest number: its point and its number."""
        return self._at(int(self.values.argmin()))

    def of(self, point: str, head: int) -> float:
        """The number of one head."""
        return float(self.values[self.points.index(find(point, self.points)), self.heads.index(head)])

    def figure(self, title: str = "") -> Figure:
        """A map of layers and heads."""
        from glassformer.looking.plots import grids

        return grids.scores(self, title)

    def pandas(self) -> Any:
        """The numbers as a DataFrame: a row for each layer, a column for each head."""
        return frame(self.values, self.points, self.heads)

    def _at(self, place: int) -> tuple[str, int]:
        layer, head = divmod(place, self.values.shape[1])
        return self.points[layer], self.heads[head]


def frame(values: Tensor, index: Sequence[Any], columns: Sequence[Any]) -> Any:
    """Numbers (R, C) as a DataFrame."""
    return optional("pandas").DataFrame(values.numpy(), index=list(index), columns=list(columns))


def need(trace: Trace, what: str, *names: str, keep: str | list[str]) -> list[Tensor]:
    """What passed some points; a trace that lacks one of them is refused, with what to keep."""
    missing = [name for name in names if name not in trace]
    if missing:
        names_kept = f'"{keep}"' if isinstance(keep, str) else "[" + ", ".join(f'"{each}"' for each in keep) + "]"
        raise InputError(f"{what} needs {missing[0]}, which this trace does not hold: record with keep={names_kept}")
    return [trace[name] for name in names]


def sentence_of(x: Tensor, sentence: int) -> Tensor:
    """One sentence of a tensor (B, …)."""
    if not 0 <= sentence < len(x):
        raise InputError(f"there is no sentence {sentence}: the trace has {len(x)}")
    return x[sentence].float() if x.is_floating_point() else x[sentence]


def attention_names(trace: Trace, what: str, kind: str) -> list[str]:
    """The names of the weights of one kind in all layers."""
    names = trace.attentions(kind)
    if not names:
        known = f"the trace holds {', '.join(trace.kinds)}" if trace.kinds else "the trace holds no attention"
        raise InputError(
            f'{what} needs the weights of {kind}: {known}; record a model that has this attention, with keep="weights"'
        )
    return names


def attention_weights(trace: Trace, what: str, kind: str, sentence: int) -> Tensor:
    """The weights of one kind of attention in one sentence, (L, H, T, S)."""
    return torch.stack([sentence_of(trace[name], sentence) for name in attention_names(trace, what, kind)])


def head_row(trace: Trace, name: str, head: int) -> int:
    """Which row of recorded weights a head is."""
    heads = trace.axes(name)["head"]
    if head not in heads:
        raise InputError(f"there is no head {head} at {name} in this trace: it holds {_listed(heads)}")
    return heads.index(head)


def labels(trace: Trace, name: str, axis: str, sentence: int = 0) -> list[str]:
    """The labels of one axis of a point, as texts."""
    return [str(label) for label in trace.axes(name, sentence)[axis]]


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
