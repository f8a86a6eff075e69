"""Recurrent layers: ours in the open, PyTorch's fused, and torch.nn's own agree in outputs and gradients."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from glassformer.errors import ConfigurationError, InputError
from glassformer.looking import record
from glassformer.parts import GRU, LSTM, RNN, Cell, Recurrent

CELLS = [RNN, GRU, LSTM]
PEERS = {RNN: nn.RNN, GRU: nn.GRU, LSTM: nn.LSTM}
PHASES = {
    RNN: ["state"],
    GRU: ["gates.reset", "gates.update", "gates.candidate", "state"],
    LSTM: [f"gates.{name}" for name in ("forget", "kept", "input", "candidate", "added")],
}
PHASES[LSTM] += ["cell", "gates.output", "state"]


def same(ours: Tensor, expected: Tensor, tolerance: float = 1e-6) -> None:
    torch.testing.assert_close(ours, expected, atol=tolerance, rtol=tolerance)


def real_of(lengths: list[int], longest: int) -> Tensor:
    return torch.arange(longest) < torch.tensor(lengths)[:, None]


def outcome(part: Recurrent, x: Tensor, real: Tensor | None, opened: bool) -> tuple[Tensor, list[Tensor]]:
    """What a part says and its last states, in one; and the gradients of all of it by inputs and weights."""
    x = x.clone().requires_grad_()
    torch.manual_seed(7)  # of dropout
    y, states = part.opened(x, real) if opened else part(x, real)
    both = torch.cat([y.flatten(), *(state.flatten() for state in states)])
    weights = torch.linspace(-1, 1, len(both), dtype=both.dtype)
    return both, list(torch.autograd.grad((both * weights).sum(), [x, *part.parameters()]))


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize(("layers", "both_ways"), [(1, False), (3, False), (2, True)])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-12)])
def test_it_equals_torch(
    cell: type[Cell], opened: bool, layers: int, both_ways: bool, dtype: torch.dtype, tolerance: float
) -> None:
    torch.manual_seed(0)
    peer = PEERS[cell](5, 6, layers, batch_first=True, bidirectional=both_ways, dtype=dtype)
    part = Recurrent(cell, 5, 6, layers, both_ways).to(dtype)
    part.fused.load_state_dict(peer.state_dict())  # the same names, the same order of gates
    x, real = torch.randn(3, 7, 5, dtype=dtype), real_of([7, 2, 4], 7)
    ours, gradients = outcome(part, x, real, opened)
    x.requires_grad_()
    packed = pack_padded_sequence(x, real.sum(1), batch_first=True, enforce_sorted=False)
    given, states = peer(packed)
    y, _ = pad_packed_sequence(given, batch_first=True)
    all_states = states if isinstance(states, tuple) else (states,)
    theirs = torch.cat([y.flatten(), *(state.flatten() for state in all_states)])
    same(ours, theirs, tolerance)
    loss = (theirs * torch.linspace(-1, 1, len(theirs), dtype=dtype)).sum()
    for our, their in zip(gradients, torch.autograd.grad(loss, [x, *peer.parameters()]), strict=True):
        same(our / loss.abs(), their / loss.abs(), tolerance)  # gradients of a loss of size 1


@given(
    cell=st.sampled_from(CELLS),
    layers=st.integers(1, 3),
    both_ways=st.booleans(),
    dropout=st.sampled_from([0.0, 0.5]),
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    padded=st.booleans(),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=40, deadline=None)
def test_looking_changes_nothing(
    cell: type[Cell], layers: int, both_ways: bool, dropout: float, lengths: list[int], padded: bool, seed: int
) -> None:
    """In training, with dropout between the layers and sentences of any lengths, to the last digits of a double."""
    torch.manual_seed(seed)
    part = Recurrent(cell, 3, 4, layers, both_ways, dropout).double().train()
    x = torch.randn(len(lengths), max(lengths), 3, dtype=torch.double)
    real = real_of(lengths, max(lengths)) if padded else None
    fused, by_fused = outcome(part, x, real, opened=False)
    opened, by_opened = outcome(part, x, real, opened=True)
    same(opened, fused, 1e-12)
    for ours, expected in zip(by_opened, by_fused, strict=True):
        same(ours, expected, 1e-12)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("opened", [False, True])
def test_padding_and_company_change_nothing(cell: type[Cell], opened: bool) -> None:
    part = Recurrent(cell, 3, 4, 2, bidirectional=True).double()
    x = torch.randn(2, 5, 3, dtype=torch.double)
    real = real_of([5, 2], 5)

    def run(x: Tensor, real: Tensor | None) -> tuple[Tensor, tuple[Tensor, ...]]:
        return part.opened(x, real) if opened else part(x, real)

    y, states = run(x, real)
    alone, alone_states = run(x[1:, :2], None)
    same(y[1:, :2], alone, 1e-12)
    assert (y[1, 2:] == 0).all()
    for state, expected in zip(states, alone_states, strict=True):
        same(state[:, 1:], expected, 1e-12)


@pytest.mark.parametrize("cell", CELLS)
def test_two_halves_are_a_whole(cell: type[Cell]) -> None:
    part, x = Recurrent(cell, 3, 4, 2).double(), torch.randn(2, 6, 3, dtype=torch.double)
    whole, states = part(x)
    first, between = part(x[:, :4])
    second, last = part(x[:, 4:], None, between)
    same(torch.cat((first, second), dim=1), whole, 1e-12)
    for ours, expected in zip(last, states, strict=True):
        same(ours, expected, 1e-12)


@pytest.mark.parametrize("cell", CELLS)
def test_every_gate_and_state_is_recorded(cell: type[Cell]) -> None:
    part, x, real = Recurrent(cell, 3, 4, 2, bidirectional=True), torch.randn(2, 5, 3), real_of([5, 3], 5)
    with record(part) as trace:
        y, states = part(x, real)
    places = ("layers.0.", "layers.0.backward.", "layers.1.", "layers.1.backward.")
    assert trace.names == [f"{place}{name}" for place in places for name in PHASES[cell]]
    for name in trace:
        values = trace[name]
        assert values.shape == (2, 5, 4)
        assert not values.requires_grad
        assert (values[1, 3:] == 0).all()
        if name.split(".")[-1] in ("forget", "input", "output", "reset", "update"):
            assert ((values[0] > 0) & (values[0] < 1)).all()
    same(torch.cat([trace["layers.1.state"], trace["layers.1.backward.state"]], dim=-1), y)
    same(trace["layers.0.state"][:, 4][:1], states[0][0][:1])


def test_the_phases_of_an_lstm_are_those_of_the_notes() -> None:
    part, x = Recurrent(LSTM, 2, 1), torch.randn(1, 4, 2)
    with record(part) as trace:
        part(x)
    phases = {name: trace[f"layers.0.{name}"] for name in PHASES[LSTM]}
    before = torch.cat((torch.zeros(1, 1, 1), phases["cell"][:, :-1]), dim=1)
    same(phases["gates.kept"], phases["gates.forget"] * before)
    same(phases["gates.added"], phases["gates.input"] * phases["gates.candidate"])
    same(phases["cell"], phases["gates.kept"] + phases["gates.added"])
    same(phases["state"], phases["gates.output"] * torch.tanh(phases["cell"]))
    earlier = torch.cat((torch.zeros(1, 1, 1), phases["state"][:, :-1]), dim=1)
    numbers = part.fused.state_dict()
    weight = torch.cat((numbers["weight_hh_l0"], numbers["weight_ih_l0"]), dim=1)  # W, of [h_{t-1}, x_t]
    sums = torch.cat((earlier, x), dim=-1) @ weight.T + numbers["bias_ih_l0"] + numbers["bias_hh_l0"]
    of_input, forget, candidate, output = sums.chunk(4, dim=-1)
    same(phases["gates.forget"], forget.sigmoid())
    same(phases["gates.input"], of_input.sigmoid())
    same(phases["gates.candidate"], candidate.tanh())
    same(phases["gates.output"], output.sigmoid())


def test_the_gradient_through_time_is_a_sum_of_products_of_jacobians() -> None:
    """∂J/∂W_x = ∂J/∂h_T Σ_k (Π_{j=k+1..T} ∂h_j/∂h_{j-1}) ∂h_k/∂W_x, with J = (y - w_y h_T)², as in the notes."""
    part, x, w_y = Recurrent(RNN, 2, 3).double(), torch.randn(1, 3, 2).double(), torch.randn(3).double()
    states, _ = part(x)
    loss = (1.5 - states[0, -1] @ w_y) ** 2
    numbers = dict(part.fused.named_parameters())
    (found,) = torch.autograd.grad(loss, [numbers["weight_ih_l0"]])
    hidden = states[0].detach()  # (T, 3)
    slopes = 1 - hidden**2  # of tanh
    back = -2 * (1.5 - hidden[-1] @ w_y) * w_y  # ∂J/∂h_T
    expected = torch.zeros(3, 2).double()
    for k in (2, 1, 0):
        expected += (back * slopes[k])[:, None] * x[0, k]  # what passed W_x at step k
        back = (back * slopes[k]) @ numbers["weight_hh_l0"].detach()  # times ∂h_k/∂h_{k-1}
    same(found, expected, 1e-12)


def test_an_lstm_begins_by_remembering() -> None:
    part = Recurrent(LSTM, 3, 4, 2, bidirectional=True)
    for layer in ("l0", "l1", "l0_reverse", "l1_reverse"):
        biases = getattr(part.fused, f"bias_ih_{layer}") + getattr(part.fused, f"bias_hh_{layer}")
        same(biases[4:8], torch.ones(4))


def test_a_copy_has_its_own_weights_and_nobody_watching() -> None:
    part, x = Recurrent(GRU, 3, 4), torch.randn(1, 2, 3)
    with record(part):
        other = copy.deepcopy(part)
    assert other.observe is None
    with torch.no_grad():
        next(other.fused.parameters()).zero_()
    assert not torch.equal(part(x)[0], other(x)[0])


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"^width must be at least 1, not 0$"):
        Recurrent(GRU, 3, 0)
    with pytest.raises(InputError, match=r"^the input has vectors of width 4, but this part was built for width 3$"):
        Recurrent(GRU, 3, 5)(torch.zeros(1, 1, 4))
    with record(Recurrent(GRU, 3, 5)) as trace:
        pass
    with pytest.raises(InputError, match=r"^nothing was recorded: run the model inside record\(\)$"):
        trace["layers.0.state"]
