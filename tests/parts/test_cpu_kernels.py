"""Kernels in C: they give what PyTorch gives, and are used where they may be."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode

import glassformer as gf
from glassformer import compiled
from glassformer.decoding import Hypothesis, Limits, beam_search, greedy
from glassformer.parts import cpu_kernels
from glassformer.parts.attention import attention, fused_attention
from glassformer.parts.linear import kernels
from glassformer.parts.masks import Mask, causal, window

pytestmark = pytest.mark.skipif(compiled.find_compiler() is None, reason="there is no C compiler")


@pytest.fixture
def by_pytorch() -> Iterator[None]:
    cpu_kernels.use_compiled(False)
    yield
    cpu_kernels.use_compiled(True)


@pytest.fixture
def in_64_bits() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def test_they_are_used_where_there_is_a_compiler() -> None:
    assert cpu_kernels.compiled()
    assert kernels().endswith("steps of decoding by kernels in C")


@given(
    sentences=st.integers(1, 3),
    groups=st.integers(1, 3),
    sharing=st.integers(1, 3),
    beams=st.integers(1, 7),
    slots=st.integers(1, 70),
    width=st.sampled_from([16, 32, 48, 64, 128, 256]),
    seen_by=st.sampled_from(["all", "sentence", "beam", "batch"]),
    scale=st.sampled_from([None, 1.0]),
    seed=st.integers(0, 10**6),
)
def test_attention_is_that_of_the_formula(
    sentences: int,
    groups: int,
    sharing: int,
    beams: int,
    slots: int,
    width: int,
    seen_by: str,
    scale: float | None,
    seed: int,
) -> None:
    torch.manual_seed(seed)
    room = slots + 5  # keys and values are the beginning of a roomier cache, queries the middle of a joint product
    query = torch.randn(sentences, beams, 3, groups * sharing, width)[:, :, 1].transpose(1, 2)
    key, value = (torch.randn(sentences, groups, room, width)[:, :, :slots] for _ in range(2))
    rows = {"all": None, "sentence": (sentences, 1), "beam": (sentences, beams), "batch": (1, beams)}[seen_by]
    mask = Mask() if rows is None else Mask(torch.rand(rows[0], 1, rows[1], slots) > 0.6)
    expected, _ = attention(query.double(), key.double(), value.double(), mask, scale=scale)
    with torch.inference_mode():
        assert cpu_kernels.suits_beams(query, key, value, mask)
        found = fused_attention(query, key, value, mask, scale=scale)
    torch.testing.assert_close(found.double(), expected, atol=2e-5, rtol=2e-5)  # where nothing is seen: zeros


def test_what_the_kernel_does_not_know_is_left_to_pytorch() -> None:
    query, key, value = torch.randn(3, 2, 4, 3, 32).unbind()
    plain = Mask()
    with torch.inference_mode():
        assert cpu_kernels.suits_beams(query, key, value, plain)
        for mask in (causal(), window(2), Mask(torch.ones(2, 4, 3, 3, dtype=torch.bool))):
            assert not cpu_kernels.suits_beams(query, key, value, mask)
        for wrong in (query.double(), query.bfloat16(), query[..., :24], query.transpose(2, 3)):
            assert not cpu_kernels.suits_beams(wrong, wrong, wrong, plain)
    assert not cpu_kernels.suits_beams(query, key, value, plain)  # while slopes may be asked for


@pytest.mark.parametrize("rows", [(2, 1, 3, 1), (1, 1, 1, 1), (2, 1, 1, 7), (1, 1, 3, 7)])
def test_a_mask_of_any_shape_that_broadcasts_is_that_of_the_formula(rows: tuple[int, ...]) -> None:
    query, key, value = torch.randn(2, 4, 3, 32), torch.randn(2, 2, 7, 32), torch.randn(2, 2, 7, 32)
    mask = Mask(torch.ones(rows, dtype=torch.bool))
    with torch.inference_mode():
        torch.testing.assert_close(fused_attention(query, key, value, mask), attention(query, key, value, mask)[0])


def test_keys_that_all_sentences_share_are_not_read_as_those_of_each() -> None:
    query, key, value = torch.randn(3, 2, 2, 32), torch.randn(1, 2, 7, 32), torch.randn(1, 2, 7, 32)
    with torch.inference_mode():
        torch.testing.assert_close(fused_attention(query, key, value), attention(query, key, value)[0])


def test_shapes_that_do_not_fit_are_refused_as_ever() -> None:
    query, key = torch.randn(2, 4, 3, 32), torch.randn(2, 2, 7, 32)
    allowed = [torch.ones(shape, dtype=torch.bool) for shape in ((3, 1, 3, 7), (2, 1, 2, 7), (2, 1, 3, 6))]
    wrong = [(query, key, key, Mask(each)) for each in [*allowed, torch.ones(2, 1, 3, 7, dtype=torch.long)]]
    wrong += [(query[:, :3], key, key, Mask()), (query[:, :1], key, key, Mask())]
    with torch.inference_mode():
        for queries, keys, values, mask in wrong:
            with pytest.raises(RuntimeError):
                fused_attention(queries, keys, values, mask)


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_who_follows_each_operation_sees_those_of_pytorch() -> None:
    def attended(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return fused_attention(query, key, value)

    queries = torch.randn(3, 5, 2, 2, 3, 32)
    with torch.inference_mode():
        expected = torch.stack([attended(*each) for each in queries.unbind(1)])
        torch.testing.assert_close(torch.vmap(attended)(*queries), expected)
        with FakeTensorMode():
            assert attended(*torch.randn(3, 2, 2, 3, 32).unbind()).shape == (2, 2, 3, 32)


@given(st.integers(1, 5), st.integers(2, 600), st.integers(1, 12), st.booleans(), st.integers(0, 10**6))
def test_the_likeliest_are_those_of_a_log_softmax(
    rows: int, vocabulary: int, count: int, some: bool, seed: int
) -> None:
    torch.manual_seed(seed)
    count = min(count, vocabulary)
    logits = torch.randn(rows, 1, vocabulary) * 4
    if some:
        logits[torch.rand_like(logits) > 0.5] = -math.inf
        logits[..., 0] = 1.0
    expected = logits.double().log_softmax(dim=-1)
    values, tokens = cpu_kernels.likeliest(logits, count)
    torch.testing.assert_close(values.double(), expected.topk(count, dim=-1).values, atol=1e-5, rtol=1e-5)
    there = values.isfinite()
    torch.testing.assert_close(values.double()[there], expected.gather(-1, tokens)[there], atol=1e-5, rtol=1e-5)
    assert all(len({*row}) == len(row) for row in (each[ok].tolist() for each, ok in zip(tokens, there, strict=True)))


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_what_is_not_finite_is_not_hidden(wrong: float) -> None:
    logits = torch.randn(2, 1, 300)
    logits[1, 0, 200] = wrong
    values, _ = cpu_kernels.likeliest(logits, 4)
    assert values[0].isfinite().all()
    assert values[1].isnan().all()


def test_the_likeliest_of_equals_are_the_first() -> None:
    _, tokens = cpu_kernels.likeliest(torch.zeros(1, 1, 100), 3)
    assert tokens.tolist() == [[[0, 1, 2]]]


@pytest.mark.parametrize(
    "limits",
    [
        Limits(2, 3, max_length=20),
        Limits(2, 3, max_length=20, no_repeat_ngram=2, suppress=(5,), min_length=7),
        Limits(2, (3, 4), max_length=12, suppress_sequences=((7, 8), (9,)), renormalise=True),
    ],
)
def test_searches_find_the_same_with_and_without(limits: Limits, by_pytorch: None) -> None:
    torch.manual_seed(1)
    model = gf.transformer(60, 32, 2, 2, 64, tie_output=False).eval()
    sources = gf.pad([[7, 8, 9, 3], [10, 11, 3], [12, 3]])

    def found(by_beams: bool, in_c: bool) -> list[Hypothesis]:
        cpu_kernels.use_compiled(in_c)
        if by_beams:
            return [row[0] for row in beam_search(model, *sources, limits=limits, width=4)]
        return greedy(model, *sources, limits=limits)

    for by_beams in (True, False):
        expected, found_in_c = (found(by_beams, in_c) for in_c in (False, True))
        assert [each.tokens for each in found_in_c] == [each.tokens for each in expected]
        for one, other in zip(found_in_c, expected, strict=True):
            assert one.log_probabilities == pytest.approx(other.log_probabilities, abs=1e-4)


@pytest.mark.parametrize(
    "usual",
    [
        lambda: torch.autocast("cpu", dtype=torch.bfloat16),
        lambda: torch.device("meta"),
        lambda: torch.inference_mode(),
    ],
)
def test_they_are_trusted_wherever_they_are_first_used(usual: Callable[[], Any], in_64_bits: None) -> None:
    logits = torch.randn(2, 1, 70, dtype=torch.float32)
    expected = cpu_kernels.likeliest(logits, 3)
    with usual():
        assert cpu_kernels._attends()
        assert cpu_kernels._scores()
        assert cpu_kernels._learns()
        assert cpu_kernels._multiplies()
        found = cpu_kernels.likeliest(logits, 3)
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


def test_kernels_that_give_other_numbers_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CC", "cc -Dlogf=expf")
    wrong = cpu_kernels._kernels.__wrapped__()
    monkeypatch.setattr(cpu_kernels, "_kernels", lambda: wrong)
    with pytest.warns(UserWarning, match="not used: _scores, _learns gave other numbers than PyTorch"):
        assert not cpu_kernels._right.__wrapped__()


# --- the loss


@pytest.mark.parametrize(("dtype", "near"), [(torch.float32, 1e-5), (torch.bfloat16, 1e-2)])
@given(
    rows=st.integers(1, 9),
    vocabulary=st.integers(2, 300),
    smoothing=st.sampled_from([0.0, 0.1]),
    seed=st.integers(0, 10**6),
)
def test_loss_and_slope_are_those_of_cross_entropy(
    dtype: torch.dtype, near: float, rows: int, vocabulary: int, smoothing: float, seed: int
) -> None:
    torch.manual_seed(seed)
    logits, right = (torch.randn(rows, vocabulary) * 3).to(dtype), torch.randint(-1, vocabulary, (rows,))
    exact = logits.double().requires_grad_()
    loss = F.cross_entropy(exact, right, label_smoothing=smoothing, reduction="sum", ignore_index=-1)
    (wanted,) = torch.autograd.grad(loss, exact)
    assert cpu_kernels.suits_loss(logits)
    total, slope = cpu_kernels.smoothed(logits, right, smoothing)
    assert slope is logits
    assert total.item() == pytest.approx(loss.item(), rel=1e-5, abs=1e-4)
    torch.testing.assert_close(slope.double(), wanted, atol=near, rtol=near)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_stays_so(dtype: torch.dtype, wrong: float) -> None:
    logits = torch.randn(2, 40).to(dtype)
    logits[1, 7] = wrong
    total, slope = cpu_kernels.smoothed(logits, torch.tensor([1, 2]), 0.1)
    assert not total.isfinite()
    assert slope[0].isfinite().all()
    assert not slope[1].isfinite().all()


def test_a_right_token_outside_the_vocabulary_is_refused() -> None:
    with pytest.raises(IndexError, match="the right token 40 is not one of 40"):
        cpu_kernels.smoothed(torch.randn(2, 40), torch.tensor([1, 40]), 0.0)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_right_tokens_may_be_of_any_kind_and_apart_in_memory(dtype: torch.dtype) -> None:
    logits, right = torch.randn(500, 7), torch.randint(7, (500, 3), dtype=dtype)
    expected = F.cross_entropy(logits, right[:, 1].long(), reduction="sum")
    total, _ = cpu_kernels.smoothed(logits, right[:, 1], 0.0)
    assert total.item() == pytest.approx(expected.item(), rel=1e-5)


def test_attention_in_16_bits_learns_as_in_32() -> None:
    torch.manual_seed(0)
    exact = torch.randn(3, 2, 4, 9, 16)
    half = exact.bfloat16()
    mask = Mask(torch.rand(2, 1, 1, 9) > 0.3) & causal()
    slope = torch.randn(2, 4, 9, 16)
    wanted, found = (learned(x, mask, slope.to(x.dtype)) for x in (exact, half))
    assert found[0].dtype == torch.bfloat16
    for one, other in zip(wanted, found, strict=True):
        torch.testing.assert_close(other.float(), one, atol=5e-2, rtol=5e-2)


def learned(x: torch.Tensor, mask: Mask, slope: torch.Tensor) -> list[torch.Tensor]:
    """What attention gives, and the slopes of queries, keys and values."""
    query, key, value = given = [each.requires_grad_() for each in x.unbind()]
    taken = fused_attention(query, key, value, mask)
    return [taken.detach(), *torch.autograd.grad(taken, given, slope)]
