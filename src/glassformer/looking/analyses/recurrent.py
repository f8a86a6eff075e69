"""Recurrent layers: gates over time, and what is left of each token later on.

A cell is a sum of what each token wrote, worn down by the gates that came after it:

    LSTM    c_t = Σ_s (Π_{u=s+1..t} f_u) ⊙ i_s ⊙ c̃_s        GRU    h_t = Σ_s (Π_{u=s+1..t} z_u) ⊙ (1 - z_s) ⊙ n_s

G gates, T tokens, S tokens before, W width of a state
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from glassformer.errors import InputError
from glassformer.looking.analyses.tables import frame, labels, need, sentence_of
from glassformer.looking.trace import Trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GATES = {"lstm": ("forget", "input", "output"), "gru": ("reset", "update")}


@dataclass(frozen=True)
class Gates:
    """The gates of one layer over time: numbers from 0, closed, to 1, open."""

    values: Tensor  # (G, T, W)
    gates: list[str]  # G
    tokens: list[str]  # T

    @property
    def mean(self) -> Tensor:
        """How open each gate is at each token, (G, T)."""
        return self.values.mean(dim=-1)

    def figure(self) -> Figure:
        """A map of each gate, a row for each unit; a line is the mean of all units."""
        from glassformer.looking.plots.vectors import gate_maps

        return gate_maps(dict(zip(self.gates, self.values, strict=True)), self.tokens, "Gates over the text")

    def pandas(self) -> Any:
        """The means as a DataFrame: a row for each gate, a column for each token."""
        return frame(self.mean, self.gates, self.tokens)


@dataclass(frozen=True)
class Memory:
    """What one layer has kept of each token at each later one."""

    kept: Tensor  # (T, S), the mean over the state of the product of gates since token s; 1 at s, 0 before
    vectors: Tensor  # (T, S, W), what is left of what token s wrote
    begun: Tensor  # (T, W), what is left of the state that it began with
    tokens: list[str]  # T

    @property
    def left(self) -> Tensor:
        """How large what is left of each token is, (T, S): the norm of its vector."""
        return self.vectors.square().sum(dim=-1).sqrt()

    def figure(self) -> Figure:
        """A map of what is left of each token at each later one."""
        from glassformer.looking.plots import grids

        return grids.memory(self)

    def pandas(self) -> Any:
        """`kept` as a DataFrame: a row for each token, a column for each token before it."""
        return frame(self.kept, self.tokens, self.tokens)


def gates(trace: Trace, layer: int = 0, stack: str = "encoder", backward: bool = False, sentence: int = 0) -> Gates:
    """The gates of one layer of an LSTM or GRU over the tokens that it reads; `backward` is the other direction."""
    place = _place(stack, layer, backward)
    names = [f"{place}.gates.{gate}" for gate in GATES[_cell(trace, place)]]
    values = torch.stack([sentence_of(x, sentence) for x in need(trace, "gates", *names, keep=f"{stack}.*.gates.*")])
    return Gates(values, [name.rpartition(".")[2] for name in names], labels(trace, names[0], "token", sentence))


def memory(trace: Trace, layer: int = 0, stack: str = "encoder", backward: bool = False, sentence: int = 0) -> Memory:
    """What is forgotten when: what the gates have left of each token at each later one.

    The vectors sum to the cell of an LSTM, or to the state of a GRU, but for what is left of the state it began with.
    In the backward direction, later is further left.
    """
    place = _place(stack, layer, backward)
    names = {
        "lstm": ("gates.forget", "gates.added", "cell"),
        "gru": ("gates.update", "gates.candidate", "state"),
    }[_cell(trace, place)]
    found = need(trace, "memory", *(f"{place}.{name}" for name in names), keep=f"{stack}.*")
    keeps, added, cell = (sentence_of(x, sentence) for x in found)  # (T, W) each
    if names[0] == "gates.update":
        added = (1 - keeps) * added
    if backward:
        keeps, added, cell = (x.flip(0) for x in (keeps, added, cell))
    products = _products(keeps)  # (T, S, W)
    vectors = products * added
    parts = (products.mean(dim=-1), vectors, cell - vectors.sum(dim=1))
    if backward:
        parts = (parts[0].flip(0, 1), parts[1].flip(0, 1), parts[2].flip(0))
    return Memory(*parts, labels(trace, f"{place}.{names[0]}", "token", sentence))


def _products(keeps: Tensor) -> Tensor:
    """Π of keeps (T, W) after token s up to token t, (T, S, W): 1 at t = s, 0 for later tokens."""
    rows = [torch.ones_like(keeps[:1])]
    for now in keeps[1:]:
        rows.append(torch.cat((rows[-1] * now, torch.ones_like(keeps[:1]))))
    missing = len(keeps)
    return torch.stack([torch.cat((row, row.new_zeros(missing - len(row), row.shape[1]))) for row in rows])


def _place(stack: str, layer: int, backward: bool) -> str:
    return f"{stack}.{layer}.backward" if backward else f"{stack}.{layer}"


def _cell(trace: Trace, place: str) -> str:
    """Which kind of cell has gates here."""
    for kind, names in GATES.items():
        if f"{place}.gates.{names[0]}" in trace or f"{place}.gates.{names[1]}" in trace:
            return kind
    held = sorted({name.partition(".gates.")[0] for name in trace.names if ".gates." in name})
    known = f"it holds those of {', '.join(held)}" if held else "only LSTM and GRU have gates"
    raise InputError(f'the trace holds no gates of {place}: {known}; record all, or with keep="gates.*"')
