"""Recurrent layers: a text is read word by word, and what was read so far is kept in a state.

    h_t = f(x_t, h_{t-1})

The weights are the same at every step. The cells differ in f: the RNN's is one layer, the GRU and the LSTM have gates,
numbers between 0 and 1 that say how much is kept, taken in and given out.

Training runs on PyTorch's fused kernels, which show nothing of this. While somebody observes, the cells below compute
the same thing in the open, from the same weights.

B batch, T length, D inputs, W width of a state, L layers times directions, G gates
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Annotated, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from glassformer.parts.checks import check_fraction, check_positive, check_width
from glassformer.parts.linear import linear
from glassformer.parts.named import Named
from glassformer.parts.observing import Axes, Observable, Observer, axes

State = tuple[Tensor, ...]  # what goes from step to step: h, and of an LSTM c as well
See = Callable[[str, Tensor], Tensor]  # what goes on at a point of a cell, (B, W)


class Cell:
    """What tells one kind of recurrence from another: PyTorch's kernel, the names of its states, and one step of it.

    A step is given what the input says, W_x x_t + b_x, what the last state says, W_h h_{t-1} + b_h, (B, G * W) each
    with the gates in the kernel's order, and the last states, (B, W) each. It lets all that it computes be seen.
    """

    kernel: ClassVar[Callable[..., nn.RNNBase]]
    states: ClassVar[int] = 1  # h; with c it is 2
    points: ClassVar[tuple[str, ...]]  # in the order of a step

    @staticmethod
    def step(from_input: Tensor, from_state: Tensor, before: State, see: See) -> State:
        """The states after one step, (B, W) each."""
        raise NotImplementedError

    @staticmethod
    def begin(weights: nn.RNNBase) -> None:
        """Set what should begin otherwise than as PyTorch does."""


class RNN(Cell):
    """h_t = tanh(W_x x_t + W_h h_{t-1} + b)."""

    kernel = nn.RNN
    points = ("state",)

    @staticmethod
    def step(from_input: Tensor, from_state: Tensor, before: State, see: See) -> State:
        return (see("state", torch.tanh(from_input + from_state)),)


class GRU(Cell):
    """The state is a mixture of the last one and of a candidate, and a gate says how much of which.

    r_t = σ(W_r [h_{t-1}, x_t] + b_r)                       reset: how much of the past the candidate sees
    z_t = σ(W_z [h_{t-1}, x_t] + b_z)                       update: how much of the past stays
    n_t = tanh(W_n x_t + b_n + r_t ⊙ (U_n h_{t-1} + c_n))   candidate
    h_t = (1 - z_t) ⊙ n_t + z_t ⊙ h_{t-1}
    """

    kernel = nn.GRU
    points = ("gates.reset", "gates.update", "gates.candidate", "state")

    @staticmethod
    def step(from_input: Tensor, from_state: Tensor, before: State, see: See) -> State:
        (last,) = before
        reset_input, update_input, new_input = from_input.chunk(3, dim=-1)
        reset_state, update_state, new_state = from_state.chunk(3, dim=-1)
        reset = see("gates.reset", torch.sigmoid(reset_input + reset_state))
        update = see("gates.update", torch.sigmoid(update_input + update_state))
        candidate = see("gates.candidate", torch.tanh(new_input + reset * new_state))
        return (see("state", (1 - update) * candidate + update * last),)


class LSTM(Cell):
    """A second state, the cell, flows through time with small changes; gates guard it.

    forget phase    f_t = σ(W_f [h_{t-1}, x_t] + b_f)       how much of each number of the cell is kept
    input phase     i_t = σ(W_i [h_{t-1}, x_t] + b_i)       how much of the candidate is added
                    c̃_t = tanh(W_c [h_{t-1}, x_t] + b_c)    candidate
    cell update     c_t = f_t ⊙ c_{t-1} + i_t ⊙ c̃_t
    output phase    o_t = σ(W_o [h_{t-1}, x_t] + b_o)       how much of the cell is shown
                    h_t = o_t ⊙ tanh(c_t)
    """

    kernel = nn.LSTM
    states = 2
    points = (
        *("gates.forget", "gates.kept", "gates.input", "gates.candidate", "gates.added"),
        *("cell", "gates.output", "state"),
    )

    @staticmethod
    def step(from_input: Tensor, from_state: Tensor, before: State, see: See) -> State:
        _, last = before
        of_input, of_forget, of_candidate, of_output = (from_input + from_state).chunk(4, dim=-1)
        kept = see("gates.kept", see("gates.forget", torch.sigmoid(of_forget)) * last)  # what is left to the cell
        taken = see("gates.input", torch.sigmoid(of_input))
        candidate = see("gates.candidate", torch.tanh(of_candidate))
        added = see("gates.added", taken * candidate)  # what the input phase gives to it
        cell = see("cell", kept + added)
        output = see("gates.output", torch.sigmoid(of_output))
        return see("state", output * torch.tanh(cell)), cell

    @staticmethod
    @torch.no_grad()
    def begin(weights: nn.RNNBase) -> None:
        """Forget little at first: the forget gates' bias begins at 1 (Gers and others, 2000)."""
        width = weights.hidden_size
        for name, bias in weights.named_parameters():
            if name.startswith("bias_"):
                bias[width : 2 * width] = 1.0 if name.startswith("bias_ih") else 0.0


CellKind = Annotated[type[Cell], Named(rnn=RNN, gru=GRU, lstm=LSTM)]


class Recurrent(Observable):
    """Layers of one kind of cell, each reading what the one below gives; both ways if `bidirectional`.

    `fused` is PyTorch's own module and holds all weights under its names, so that they go from and to `torch.nn` as
    they are. It gives (B, T, W), or (B, T, 2 * W) if it reads both ways. Dropout stands between the layers.
    """

    def __init__(
        self,
        cell: type[Cell],
        inputs: int,
        width: int,
        layers: int = 1,
        bidirectional: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_positive(inputs=inputs, width=width, layers=layers)
        check_fraction(dropout=dropout)
        self.cell = cell
        between = dropout if layers > 1 else 0.0  # below the first and above the last, others drop
        self.fused = cell.kernel(inputs, width, layers, batch_first=True, bidirectional=bidirectional, dropout=between)
        cell.begin(self.fused)

    def points(self) -> dict[str, Axes]:
        """What each cell computes, by layer: `0.gates.forget`, and of the other direction `0.backward.gates.forget`."""
        numbers = axes(token=None, feature=self.fused.hidden_size)
        return {f"{place}{name}": numbers for place in self._places() for name in self.cell.points}

    def _places(self) -> list[str]:
        """How the points of each layer and direction begin, in the order of the kernel's states."""
        ways = ("", "backward.")[: self.directions]
        return [f"{layer}.{way}" for layer in range(self.fused.num_layers) for way in ways]

    @property
    def directions(self) -> int:
        """1, or 2 where it reads both ways."""
        return 2 if self.fused.bidirectional else 1

    def begin(self, x: Tensor) -> State:
        """The state before anything was read: zeros, (L, B, W) each, for inputs (B, T, D)."""
        count = self.fused.num_layers * self.directions
        zeros = x.new_zeros(count, len(x), self.fused.hidden_size)
        return tuple(zeros.clone() for _ in range(self.cell.states))

    def forward(self, x: Tensor, real: Tensor | None = None, state: State | None = None) -> tuple[Tensor, State]:
        """What the last layer says after each of x (B, T, D), and the states of all layers in the end, (L, B, W) each.

        `real` (B, T) is True where there is something to read, and padding comes last: it is packed away, changes no
        state and gets zeros. `state` is what was read before, if anything.
        """
        check_width(x, self.fused.input_size, "the input")
        fused = self._fused(x, real, state)
        if self.observe is None or not self.observe.wants(*self.points()):
            return fused
        changes = _Changes(self.observe, len(x), x.device)
        with torch.random.fork_rng(enabled=self.training):
            opened = self.opened(x, real, state, changes)
        return changes.merged(opened, fused)

    def _fused(self, x: Tensor, real: Tensor | None, state: State | None) -> tuple[Tensor, State]:
        """The same by PyTorch's kernel."""
        on_cpu = x.device.type == "cpu"  # many CPUs have no LSTM in 16 bits: for the kernel, autocast is off on them
        with torch.autocast("cpu", enabled=False) if on_cpu else nullcontext():
            x = x.to(next(self.fused.parameters()).dtype) if on_cpu else x
            packed = x if real is None else _pack(x, real)
            y, last = self.fused(packed, None if state is None else state if len(state) > 1 else state[0])
        if isinstance(y, PackedSequence):
            y, _ = pad_packed_sequence(y, batch_first=True, total_length=x.shape[1])  # (B, T, W)
        return y, last if isinstance(last, tuple) else (last,)

    def opened(
        self, x: Tensor, real: Tensor | None = None, state: State | None = None, changes: _Changes | None = None
    ) -> tuple[Tensor, State]:
        """The same as `forward`, in the open: layer by layer, direction by direction, step by step."""
        state, ends = self.begin(x) if state is None else state, list[State]()
        given: list[Tensor] = []
        for number in range(len(state[0])):
            if number % self.directions == 0 and number:
                x = torch.cat(given, dim=-1)  # (B, T, W), or twice as wide
                x, given = _dropped(x, real, self.fused.dropout) if self.training else x, []
            hidden, end = self._layer(number, x, real, tuple(each[number] for each in state), changes)
            given.append(hidden)
            ends.append(end)
        return torch.cat(given, dim=-1), tuple(torch.stack(each) for each in zip(*ends, strict=True))

    def _layer(
        self, number: int, x: Tensor, real: Tensor | None, state: State, changes: _Changes | None
    ) -> tuple[Tensor, State]:
        """One layer in one direction over x (B, T, D): its states (B, T, W), 0 in padding, and its last ones."""
        back = number % self.directions == 1
        place = f"l{number // self.directions}{'_reverse' if back else ''}"
        by_input, by_state, bias_input, bias_state = (
            getattr(self.fused, f"{name}_{place}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        from_input = linear(x, by_input, bias_input)  # (B, T, G * W)
        steps: list[Tensor] = []
        tokens = range(x.shape[1])
        for t in reversed(tokens) if back else tokens:
            there = None if real is None else real[:, t, None]  # (B, 1)
            see = _pass_by if changes is None else changes.seeing(self._places()[number], t, there)
            new = self.cell.step(from_input[:, t], linear(state[0], by_state, bias_state), state, see)
            steps.append(new[0] if there is None else new[0] * there)
            if there is not None:
                new = tuple(torch.where(there, each, old) for each, old in zip(new, state, strict=True))
            state = new
        if back:
            steps.reverse()
        return torch.stack(steps, dim=1), state

    def extra_repr(self) -> str:
        return self.cell.__name__


def _pass_by(name: str, x: Tensor) -> Tensor:
    """What goes on where nobody observes."""
    return x


class _Changes:
    """Shows an observer what cells compute, and knows the sentences in which it changed something."""

    def __init__(self, observe: Observer, sentences: int, device: torch.device) -> None:
        self.observe, self.of = observe, torch.zeros(sentences, dtype=torch.bool, device=device)  # (B)
        self.any = False

    def seeing(self, place: str, t: int, there: Tensor | None) -> See:
        """Shows the points of one layer at one token; of padding (`there` is False, (B, 1)), zeros."""

        def see(name: str, x: Tensor) -> Tensor:
            shown = x if there is None else x * there
            new = self.observe(f"{place}{name}", shown, at=t)
            if new is shown:
                return x
            self.any = True
            self.of |= (new != shown).any(dim=1)
            return new

        return see

    def merged(self, opened: tuple[Tensor, State], fused: tuple[Tensor, State]) -> tuple[Tensor, State]:
        """What the kernel gave, to the bit, but for sentences with a change."""
        if not self.any:
            return fused
        y, last = (torch.where(self.of[:, None, None], opened[0].to(fused[0].dtype), fused[0]), fused[1])
        states = zip(opened[1], last, strict=True)
        return y, tuple(torch.where(self.of[:, None], new.to(old.dtype), old) for new, old in states)


def _pack(x: Tensor, real: Tensor) -> PackedSequence:
    """The real ones of (B, T, D), without padding. PyTorch needs their counts on the CPU."""
    return pack_padded_sequence(x, real.sum(dim=1).cpu(), batch_first=True, enforce_sorted=False)


def _dropped(x: Tensor, real: Tensor | None, share: float) -> Tensor:
    """Dropout as the fused kernel has it: drawn time after time, or over what was packed, so that seeds agree."""
    if real is None:
        return F.dropout(x.transpose(0, 1).contiguous(), share).transpose(0, 1)
    packed = _pack(x, real)
    dropped = packed._replace(data=F.dropout(packed.data, share))
    return pad_packed_sequence(dropped, batch_first=True, total_length=x.shape[1])[0]
