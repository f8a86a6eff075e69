"""Optimisers against PyTorch's own and by formula; a bad gradient changes nothing."""

import math
from typing import Literal

import pytest
import torch
from torch import Tensor, nn

from glassformer.errors import TrainingError
from glassformer.training.optimisers import Adam, Muon, optimiser, orthogonal

from .helpers import model, options

Kind = Literal["adamw", "adam", "muon"]
OPTIMISERS: list[Kind] = ["adamw", "adam", "muon"]
GOOD, BAD = torch.tensor(False), torch.tensor(True)


def fill(net: nn.Module, seed: int, factor: float = 1.0) -> None:
    torch.manual_seed(seed)
    for parameter in net.parameters():
        parameter.grad = torch.randn(parameter.shape) * factor


@pytest.mark.parametrize("kind", ["adamw", "adam"])
def test_adam_is_torchs_own(kind: Kind) -> None:
    ours, theirs = model(), model()
    chosen = optimiser(ours, options(optimiser=kind, lr=0.01, weight_decay=0.1))
    matrices = [p for p in theirs.parameters() if p.dim() > 1]
    rest = [p for p in theirs.parameters() if p.dim() <= 1]
    reference: torch.optim.Optimizer
    if kind == "adam":
        reference = torch.optim.Adam([*matrices, *rest], 0.005, (0.9, 0.98), 1e-9)
    else:
        groups = [{"params": matrices, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
        reference = torch.optim.AdamW(groups, 0.005, (0.9, 0.98))
    for step in range(5):
        fill(ours, step, factor=3.0)
        fill(theirs, step)
        chosen.prepare(torch.tensor(3.0), GOOD)(0.5)
        reference.step()
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", OPTIMISERS)
def test_a_bad_step_changes_neither_weights_nor_averages(kind: Kind) -> None:
    net = model()
    chosen = optimiser(net, options(optimiser=kind))
    fill(net, 0)
    chosen.prepare(torch.tensor(1.0), GOOD)(1.0)
    before = [p.detach().clone() for p in net.parameters()], {k: v.clone() for k, v in chosen.state().items()}
    for number in (math.nan, math.inf):
        fill(net, 1, factor=number)
        chosen.prepare(torch.tensor(math.nan), BAD)(1.0)
    assert all(torch.equal(p, old) for p, old in zip(net.parameters(), before[0], strict=True))
    assert all(torch.equal(value, before[1][name]) for name, value in chosen.state().items())


@pytest.mark.parametrize("kind", OPTIMISERS)
def test_a_loaded_state_goes_on_bit_for_bit(kind: Kind) -> None:
    straight, broken = model(), model()
    chosen = optimiser(straight, options(optimiser=kind))
    other = optimiser(broken, options(optimiser=kind))
    for step in range(4):
        if step == 2:
            state = {name: value.clone() for name, value in other.state().items()}
            other = optimiser(broken, options(optimiser=kind))
            other.load(state)
        for net, one in ((straight, chosen), (broken, other)):
            fill(net, step)
            one.prepare(torch.tensor(2.0), GOOD)(1.0)
    assert all(torch.equal(*pair) for pair in zip(straight.parameters(), broken.parameters(), strict=True))


@pytest.mark.parametrize(("written", "read"), [("adamw", "muon"), ("muon", "adamw")])
def test_the_state_of_another_optimiser_is_refused(written: Kind, read: Kind) -> None:
    net = model()
    first = optimiser(net, options(optimiser=written))
    fill(net, 0)
    first.prepare(torch.tensor(1.0), GOOD)(1.0)
    with pytest.raises(TrainingError, match=r"lacks .*another optimiser|state time belongs to another model"):
        optimiser(net, options(optimiser=read)).load(first.state())


@pytest.mark.parametrize("shape", [(3, 6, 6), (2, 5, 16)])
def test_orthogonal_matrices_keep_their_directions(shape: tuple[int, ...]) -> None:
    matrices = torch.randn(shape)
    turned = orthogonal(matrices)
    values = torch.linalg.svdvals(turned)
    assert values.min() > 0.3
    assert values.max() < 1.3
    left, _, right = torch.linalg.svd(matrices, full_matrices=False)
    inner = left.mT @ turned @ right.mT  # diagonal in the singular vectors of what came in
    torch.testing.assert_close(inner, torch.diag_embed(inner.diagonal(dim1=1, dim2=2)), atol=1e-4, rtol=0)


def test_muon_by_its_formula() -> None:
    torch.manual_seed(1)
    named = {name: nn.Parameter(torch.randn(shape)) for name, shape in [("wide", (4, 8)), ("tall", (8, 4))]}
    muon = Muon(named, lr=0.1, weight_decay=0.5, momentum=0.9)
    expected = {name: parameter.detach().clone() for name, parameter in named.items()}
    momentum = {name: torch.zeros_like(parameter) for name, parameter in named.items()}
    for _ in range(3):
        gradients: dict[str, Tensor] = {name: torch.randn_like(parameter) for name, parameter in named.items()}
        for name, gradient in gradients.items():
            named[name].grad = gradient * 4
            momentum[name] = 0.9 * momentum[name] + gradient
            step = gradient + 0.9 * momentum[name]
            step = orthogonal(step[None])[0] if name == "wide" else orthogonal(step.T[None])[0].T * math.sqrt(2)
            expected[name] = expected[name] * (1 - 0.05 * 0.5) - 0.05 * step
        muon.prepare(torch.tensor(4.0), GOOD)(0.5)
    for name, parameter in named.items():
        torch.testing.assert_close(parameter.detach(), expected[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("tie", [True, False])
def test_muon_takes_the_matrices_of_blocks_only(tie: bool) -> None:
    adam, muon = optimiser(model(tie_output=tie), options(optimiser="muon")).methods
    assert isinstance(adam, Adam)
    assert isinstance(muon, Muon)
    muons = {name for stack in muon.stacks for name in stack}
    assert all(".blocks." in name and name.endswith("weight") and "norm" not in name for name in muons)
    assert len(muons) == 6 + 10  # an encoder block's matrices and a decoder block's
    assert muons.isdisjoint(adam.named)
    assert ("head.weight" in adam.named) == (not tie)


def test_muon_has_nothing_to_do_where_no_matrix_is_in_a_block() -> None:
    net = nn.Embedding(5, 4)
    chosen = optimiser(net, options(optimiser="muon", lr=0.1))
    before = net.weight.detach().clone()
    fill(net, 0)
    chosen.prepare(torch.tensor(1.0), GOOD)(1.0)
    assert not torch.equal(net.weight, before)
