"""The workings of recurrent layers, and of the attention of their decoders.

    W x + U h + b, then a gate's function; gates times states

T tokens, D inputs, W width of a state
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from glassformer.looking.sums.place import Place
from glassformer.looking.sums.steps import Step, Term, linear_terms, linear_values, products, softmax_steps, step
from glassformer.parts.alignment import Alignment, MultiplicativeScore
from glassformer.parts.recurrent import GRU, LSTM, Recurrent

ORDER = {"LSTM": ("input", "forget", "candidate", "output"), "GRU": ("reset", "update", "candidate"), "RNN": ("state",)}


class Cell:
    """One layer of a recurrent stack, in one direction, at one token."""

    def __init__(self, place: Place) -> None:
        self.place, self.layers = place, place.part
        assert isinstance(self.layers, Recurrent)  # noqa: S101  (it is what the point belongs to)
        words = place.point.split(".")
        self.layer, self.backward = int(words[1]), words[2] == "backward"
        self.where = ".".join(words[: 3 if self.backward else 2])
        self.name = place.point.removeprefix(f"{self.where}.")

    def of(self, local: str) -> float:
        """One number of this cell at this token."""
        return float(self.place.vector(f"{self.where}.{local}")[self.place.at])

    def weights(self, which: str) -> Tensor:
        """Weights or biases under PyTorch's name: "weight_ih", "bias_hh"."""
        suffix = f"l{self.layer}{'_reverse' if self.backward else ''}"
        found: Tensor = getattr(self.layers.fused, f"{which}_{suffix}")
        return found.detach().double().cpu()

    def read(self) -> Tensor:
        """What the layer reads at this token, (D): the embedding, or the states of the layer below."""
        place = self.place
        if self.layer == 0:
            return place.vector(f"{place.stack}.0.before")
        ways = ("", ".backward")[: self.layers.directions]
        return torch.cat([place.vector(f"{place.stack}.{self.layer - 1}{way}.state") for way in ways])

    def before(self, local: str) -> Tensor:
        """The state or cell that goes in, (W): of the token before, or what the layer began with."""
        place, last = self.place, self.place.token + (1 if self.backward else -1)
        count = len(place.table(f"{self.where}.state"))
        if 0 <= last < count:
            return place.vector(f"{self.where}.{local}", last)
        zeros = torch.zeros(self.layers.fused.hidden_size, dtype=torch.float64)
        encoder = getattr(place.model, "encoder", None)
        if place.stack != "decoder" or encoder is None:
            return zeros
        return final_state(place, encoder.layers, self.layer, local)

    def gate(self, gate: str, function: Any, reset: float | None = None) -> Step:
        """function(W x + U h + b) of one gate; of a GRU's candidate, what the state says is times the reset gate."""
        order, width = ORDER[self.layers.cell.__name__], self.layers.fused.hidden_size
        row = order.index(gate) * width + self.place.at
        x, h = self.read(), self.before("state")
        terms = products([f"x {n}" for n in range(len(x))], x, self.weights("weight_ih")[row])
        terms.append(Term("bias of x", (float(self.weights("bias_ih")[row]),)))
        from_state = products([f"h {n}" for n in range(len(h))], h, self.weights("weight_hh")[row])
        from_state.append(Term("bias of h", (float(self.weights("bias_hh")[row]),)))
        if reset is not None:
            from_state = [Term(each.label, (*each.factors, reset)) for each in from_state]
        factors = ("x or h", "weight", *(("reset gate",) if reset is not None else ()))
        inner = "W x + r ⊙ (U h) + b" if reset is not None else "W x + U h + b"
        name = {"tanh": "tanh", "sigmoid": "σ"}[function.__name__]
        return step(f"{name}({inner})", [*terms, *from_state], factors, function)


def final_state(place: Place, layers: Any, layer: int, local: str) -> Tensor:
    """The last state of an encoder's layer, (W): both directions side by side."""
    last = len(place.table(f"encoder.{layer}.state")) - 1
    found = [place.vector(f"encoder.{layer}.{local}", last)]
    if layers.directions > 1:
        found.append(place.vector(f"encoder.{layer}.backward.{local}", 0))
    return torch.cat(found)


def cell_steps(place: Place) -> list[Step]:
    """The working of one number of a recurrent cell."""
    cell = Cell(place)
    kind = cell.layers.cell
    if cell.name.startswith("gates.") and (gate := cell.name.removeprefix("gates.")) not in ("kept", "added"):
        reset = cell.of("gates.reset") if kind is GRU and gate == "candidate" else None
        return [cell.gate(gate, torch.tanh if gate == "candidate" else torch.sigmoid, reset)]
    if kind is LSTM:
        return _lstm(cell)
    if kind is GRU:
        update, last = cell.of("gates.update"), float(cell.before("state")[place.at])
        terms = [
            Term("candidate", (1 - update, cell.of("gates.candidate"))),
            Term("state before", (update, last)),
        ]
        return [step("(1 − z) ⊙ candidate + z ⊙ state before", terms, ("gate", "value"))]
    return [cell.gate("state", torch.tanh)]


def _lstm(cell: Cell) -> list[Step]:
    """What an LSTM keeps, adds, holds and shows."""
    at = str(cell.place.at)
    match cell.name:
        case "gates.kept":
            last = float(cell.before("cell")[cell.place.at])
            return [step("forget gate × cell before", [Term(at, (cell.of("gates.forget"), last))], ("forget", "cell"))]
        case "gates.added":
            terms = [Term(at, (cell.of("gates.input"), cell.of("gates.candidate")))]
            return [step("input gate × candidate", terms, ("input", "candidate"))]
        case "cell":
            terms = [Term("kept", (cell.of("gates.kept"),)), Term("added", (cell.of("gates.added"),))]
            return [step("kept + added", terms)]
        case _:
            shown = step("tanh(cell)", [Term("cell", (cell.of("cell"),))], (), torch.tanh)
            terms = [Term(at, (cell.of("gates.output"), shown.value))]
            return [shown, step("output gate × tanh(cell)", terms, ("output", "tanh(cell)"))]


def alignment_steps(place: Place) -> list[Step]:
    """The working of one number of the attention of a recurrent decoder."""
    part: Alignment = place.part
    decoder = place.model.decoder
    states = f"decoder.{decoder.layers.fused.num_layers - 1}.state"
    names = place.names(f"{place.path}.weights", "key")
    match place.local:
        case "keys":
            terms = linear_terms(part.score.key, place.vector("encoder.output"), place.at)
            return [step("W s + b", terms, ("s", "W"))]
        case "scores":
            h, key = place.vector(states), place.vector(f"{place.path}.keys", place.at)
            if isinstance(part.score, MultiplicativeScore):
                return [step("h · W s", products(range(len(h)), h, key), ("h", "W s"))]
            hidden = torch.tanh(linear_values(part.score.query, h) + key)
            return [step("v · tanh(W_h h + W_s s)", linear_terms(part.score.score, hidden, 0), ("tanh(…)", "v"))]
        case "weights":
            scores, weights = place.vector(f"{place.path}.scores"), place.vector(place.point)
            return softmax_steps(scores.masked_fill(weights == 0, -math.inf), names, place.at)
        case "heads":
            values = place.table("encoder.output")[:, place.at]
            return [
                step("weighted sum", products(names, place.vector(f"{place.path}.weights"), values), ("weight", "s"))
            ]
        case _:
            both = torch.cat((place.vector(states), place.vector(f"{place.path}.heads")))
            width = len(place.vector(states))
            labels = [f"h {n}" if n < width else f"context {n - width}" for n in range(len(both))]
            terms = linear_terms(part.output, both, place.at, labels)
            return [step("tanh(W [h; context] + b)", terms, ("h or context", "W"), torch.tanh)]
