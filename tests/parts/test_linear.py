"""Linear parts: whatever kernel multiplies, the numbers and slopes are those of the formula."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import glassformer as gf
from glassformer.parts import linear as module
from glassformer.parts.linear import LEAST, Linear, linear, products

SIZES = [(3, 5, 4, 6), (64, 8, 96, 128), (512, 1, 128, 96)]  # (B, T, D, F): two of them are large enough for oneDNN


@pytest.fixture(params=[False, True], ids=["usual", "onednn"])
def onednn(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    if request.param and not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        pytest.skip("this PyTorch has no oneDNN")
    monkeypatch.setattr(module, "ONEDNN", request.param)
    monkeypatch.setattr(module, "LEAST", 1 if request.param else LEAST)
    return bool(request.param)


def close(found: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(found.double(), wanted.double(), atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("with_bias", [True, False])
def test_product_and_slopes_are_those_of_the_formula(onednn: bool, size: tuple[int, ...], with_bias: bool) -> None:
    rows, length, inputs, outputs = size
    torch.manual_seed(0)
    x = torch.randn(rows, length, inputs, requires_grad=True)
    weight = (torch.randn(outputs, inputs) / inputs**0.5).requires_grad_()
    bias = torch.randn(outputs, requires_grad=True) if with_bias else None
    learned = [each for each in (x, weight, bias) if each is not None]
    y, slope = linear(x, weight, bias), torch.randn(rows, length, outputs)
    wanted = torch.einsum("btd,fd->btf", x.double(), weight.double()) + (0 if bias is None else bias.double())
    close(y, wanted)
    for found, right in zip(
        torch.autograd.grad(y, learned, slope), torch.autograd.grad(wanted, learned, slope.double()), strict=True
    ):
        close(found, right)
        assert found.shape == right.shape
    spread = torch.ones(1, 1, 1).expand_as(y)  # one number in memory, as the slope of a sum is
    close(torch.autograd.grad(linear(x, weight, bias), weight, spread)[0], x.double().sum(dim=(0, 1)).expand_as(weight))
    close(
        linear(x[:, :, ::2], weight[:, ::2]),
        torch.einsum("btd,fd->btf", x[:, :, ::2].double(), weight[:, ::2].double()),
    )
    assert linear(x[0, 0], weight).shape == (outputs,)


def test_products_of_stacks(onednn: bool) -> None:
    one, other, total = torch.randn(2, 30, 70), torch.randn(2, 40, 70), torch.randn(2, 30, 40)
    wanted = torch.einsum("mrd,msd->mrs", one.double(), other.double())
    close(products(one, other), wanted)
    close(products(one, other, alpha=0.5), 0.5 * wanted)
    close(products(one, other, total, alpha=0.5, beta=-2.0), 0.5 * wanted - 2 * total.double())
    assert products(one[:0], other[:0]).shape == (0, 30, 40)


def test_slopes_of_slopes(onednn: bool) -> None:
    torch.manual_seed(0)
    x, weight = (torch.randn(4, 3, requires_grad=True) for _ in range(2))

    def twice(multiply: Any) -> Tensor:
        (first,) = torch.autograd.grad(multiply(x, weight).pow(3).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.pow(2).sum(), weight)
        return second

    torch.testing.assert_close(twice(linear), twice(F.linear), rtol=1e-4, atol=1e-4)


def test_what_does_not_learn_gets_no_slope(onednn: bool) -> None:
    x, part = torch.randn(4, 8), Linear(8, 3).requires_grad_(False)
    assert not part(x).requires_grad
    x.requires_grad_()
    torch.autograd.backward(part(x).sum())
    assert part.weight.grad is None
    assert x.grad is not None
    with torch.no_grad():
        assert not Linear(8, 3)(x).requires_grad


def test_other_precisions_are_left_to_pytorch(onednn: bool) -> None:
    x, part = torch.randn(4, 8), Linear(8, 3)
    with torch.autocast("cpu", torch.bfloat16):
        y = part(x)
        assert y.dtype == torch.bfloat16
        torch.autograd.backward(y.sum())
    assert part.double()(x.double()).dtype == torch.float64
    assert part.bfloat16()(x.bfloat16()).dtype == torch.bfloat16


def test_a_model_learns_the_same(onednn: bool) -> None:
    torch.manual_seed(0)
    model = gf.transformer(30, width=32, heads=2, layers=1, hidden=64, dropout=0.0)
    source, target = torch.randint(4, 30, (2, 8, 6))
    loss = F.cross_entropy(model(source, target).flatten(0, 1), target.flatten())
    torch.autograd.backward(loss)
    double = gf.transformer(30, width=32, heads=2, layers=1, hidden=64, dropout=0.0).double()
    double.load_state_dict(model.state_dict())
    torch.autograd.backward(F.cross_entropy(double(source, target).flatten(0, 1), target.flatten()))
    for (name, one), other in zip(model.named_parameters(), double.parameters(), strict=True):
        assert one.grad is not None, name
        assert other.grad is not None, name
        close(one.grad, other.grad)


def test_which_kernel_suits_depends_on_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    def prefers(capability: str, intel: bool) -> bool:
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
        monkeypatch.setattr(module, "made_by_intel", lambda: intel)
        return module.prefers_onednn()

    assert prefers("AVX512", False) == torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    assert not prefers("AVX512", True)
    assert not prefers("AVX2", False)
