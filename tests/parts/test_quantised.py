"""8-bit linear parts: near the float ones, by the stated arithmetic, and indifferent to batch mates."""

import copy
import io
import math
import pickle
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import glassformer as gf
from glassformer.errors import ConfigurationError, GlassformerError, InputError, NonFiniteError
from glassformer.parts import Int8Linear, TiedHead, cpu_kernels, inference
from glassformer.parts.inference import together


@pytest.fixture(params=["kernels in C", *sorted({63, inference.LARGEST})])
def largest(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The largest number of a token in 8 bits: 63 works on all processors, 127 on those with VNNI."""
    if request.param == "kernels in C":
        if not cpu_kernels.multiplies():
            pytest.skip("this machine has no compiler, or no VNNI instructions")
        yield 127
        return
    monkeypatch.setattr(inference, "LARGEST", request.param)
    with cpu_kernels.by_pytorch():
        yield int(request.param)


def by_hand(x: Tensor, weight: Tensor, bias: Tensor | None, largest: int) -> Tensor:
    """The documented arithmetic in float64: whole numbers up to `largest` for tokens and 127 for weights."""
    scale_x = x.double().abs().amax(dim=-1, keepdim=True) / largest
    scale_w = weight.double().abs().amax(dim=1) / 127
    whole = (x / scale_x.float()).round().double() @ (weight / scale_w.float()[:, None]).round().double().T
    y = whole * scale_x * scale_w
    return y if bias is None else y + bias


def rows(count: int, width: int, most: int) -> Tensor:
    """Rows whose largest number is `most` steps, and whose others are clearly nearer to one whole step than another."""
    steps = torch.randint(-most + 1, most, (count, width)) + torch.empty(count, width).uniform_(-0.45, 0.45)
    steps[:, torch.randint(width, ())] = most
    return steps * torch.rand(count, 1).add_(0.1)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, 40), st.integers(1, 70), st.integers(1, 70), st.booleans(), st.integers(0, 10**6))
def test_it_computes_the_stated_arithmetic(
    largest: int, tokens: int, inputs: int, outputs: int, bias: bool, seed: int
) -> None:
    torch.manual_seed(seed)
    linear = nn.Linear(inputs, outputs, bias=bias)
    with torch.no_grad():
        linear.weight.copy_(rows(outputs, inputs, 127) / 1000)
    x = rows(tokens, inputs, largest)[None]
    with torch.inference_mode():
        expected = by_hand(x, linear.weight, linear.bias, largest)
        torch.testing.assert_close(Int8Linear(linear.weight, linear.bias)(x).double(), expected, atol=1e-4, rtol=1e-4)


def test_the_largest_products_do_not_overflow(largest: int) -> None:
    linear = Int8Linear(torch.ones(4, 512))
    with torch.inference_mode():
        torch.testing.assert_close(linear(torch.ones(1, 1, 512)), torch.full((1, 1, 4), 512.0))
        torch.testing.assert_close(linear(-torch.ones(1, 1, 512)), torch.full((1, 1, 4), -512.0))


def test_it_is_near_the_float_part() -> None:
    linear, x = nn.Linear(256, 64), torch.randn(3, 5, 256)
    with torch.inference_mode():
        error = (Int8Linear(linear.weight, linear.bias)(x) - linear(x)).norm() / linear(x).norm()
    assert error < 0.03


def test_batch_mates_change_nothing() -> None:
    linear, x = Int8Linear(torch.randn(16, 32)), torch.randn(4, 3, 32)
    x[0] *= 1000
    with torch.inference_mode():
        assert torch.equal(linear(x)[2:3], linear(x[2:3]))


def test_zeros_stay_zeros() -> None:
    with torch.inference_mode():
        assert torch.equal(Int8Linear(torch.zeros(3, 4))(torch.zeros(1, 2, 4)), torch.zeros(1, 2, 3))


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_what_is_not_finite_is_not_hidden(largest: int, wrong: float) -> None:
    x = torch.randn(1, 3, 32)
    x[0, 1, 7] = wrong
    x[0, 2] = wrong
    with torch.inference_mode():
        y = Int8Linear(torch.randn(40, 32), torch.randn(40))(x)
    assert y[0, 0].isfinite().all()
    assert not y[0, 1:].isfinite().any()


def test_vectors_in_16_or_64_bits_are_read_as_the_numbers_that_they_are() -> None:
    linear, x = Int8Linear(torch.randn(40, 32)), torch.randn(1, 3, 32).bfloat16()
    with torch.inference_mode():
        for each in (x, x.double()):
            torch.testing.assert_close(linear(each).float(), linear(x.float()), atol=0.2, rtol=0.02)


def test_vectors_of_another_length_or_without_numbers_are_refused() -> None:
    linear = Int8Linear(torch.randn(40, 32))
    with torch.inference_mode():
        for wrong in (torch.randn(1, 3, 64), torch.randn(1, 3, 16), torch.randn(1, 3, 32, device="meta")):
            with pytest.raises((InputError, RuntimeError)):
                linear(wrong)


def test_a_quantised_model_whose_outputs_are_not_finite_is_refused() -> None:
    model: Any = gf.transformer(50, width=64, heads=4, layers=2, hidden=128, tie_output=False).eval()
    with torch.no_grad():
        model.decoder.norm.weight[3] = torch.nan
    source, keep = gf.pad([[5, 6, 7], [8, 9]])
    with pytest.raises(NonFiniteError, match="sentence 0"):
        gf.beam_search(gf.quantise(model, least=1), source, keep, limits=gf.Limits(start=1, end=2, max_length=6))


def test_a_quantised_model_has_no_float_matrix_left_and_leaves_the_original_alone() -> None:
    model = gf.transformer(50, width=16, heads=2, layers=1, hidden=32)
    before = copy.deepcopy(model.state_dict())
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # PyTorch's older 8-bit tensors are deprecated: we use none of them
        small = gf.quantise(model, least=1)
    assert not any(isinstance(part, nn.Linear | TiedHead) for part in small.modules())
    assert (
        sum(isinstance(part, Int8Linear) for part in small.modules()) == 4 + 7 + 1
    )  # queries, keys and values are joined
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert model.training
    assert not small.training


def test_a_quantised_model_decodes_much_like_the_original_and_can_be_copied() -> None:
    model = gf.transformer(50, width=64, heads=4, layers=2, hidden=128, tie_output=False).eval()
    small = copy.deepcopy(gf.quantise(model, least=1))
    source, keep = gf.pad([[5, 6, 7], [8, 9]])
    with torch.inference_mode():
        logits, near = (each(source, torch.tensor([[1, 4], [1, 5]]), keep) for each in (model, small))
    assert (near - logits).norm() / logits.norm() < 0.1
    limits = gf.Limits(start=1, end=2, max_length=6)
    assert all(answers for answers in gf.beam_search(small, source, keep, limits=limits, width=3))


def test_it_says_where_it_cannot_run() -> None:
    with pytest.raises(ConfigurationError, match="need a CPU and PyTorch's oneDNN kernels, not meta"):
        Int8Linear(torch.empty(3, 4, device="meta"))


def test_small_parts_stay_in_float_and_a_shared_part_stays_shared() -> None:
    large, tiny = nn.Linear(512, 512), nn.Linear(4, 4)
    small = gf.quantise(nn.ModuleDict({"one": large, "other": large, "tiny": tiny}))
    assert isinstance(small["one"], Int8Linear)
    assert small["one"] is small["other"]
    assert isinstance(small["tiny"], nn.Linear)
    assert isinstance(gf.quantise(large), Int8Linear)


def test_parts_over_the_same_vectors_round_them_once_and_give_what_they_give_alone() -> None:
    parts, x = [Int8Linear(torch.randn(8, 16), torch.randn(8)) for _ in range(3)], torch.randn(2, 3, 16)
    with torch.inference_mode():
        for alone, joint in zip([part(x) for part in parts], together(x, *parts), strict=True):
            assert torch.equal(alone, joint)
        mixed = together(x, parts[0], nn.Linear(16, 8))
    assert [y.shape for y in mixed] == [(2, 3, 8), (2, 3, 8)]


def test_saving_a_quantised_model_is_refused_in_a_sentence_and_copying_it_is_not() -> None:
    model = gf.quantise(gf.transformer(50, width=16, heads=2, layers=1, hidden=32), least=1)
    for save in (pickle.dumps, lambda it: torch.save(it, io.BytesIO()), lambda it: it.state_dict()):
        with pytest.raises(GlassformerError, match="a quantised model cannot be saved: save the original"):
            save(model)
    assert isinstance(model.head, Int8Linear)
    assert copy.copy(model.head) is model.head
    assert copy.copy(model).head is copy.deepcopy(model).head is model.head
