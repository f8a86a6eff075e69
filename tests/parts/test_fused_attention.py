"""The fused kernel and attention in the open are one function: same numbers, same gradients, nobody a NaN."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from glassformer.looking import record
from glassformer.parts import ALiBi, Mask, MultiHeadAttention, attention, fused_attention, padding

from .helpers import randomise, same, seeds

sizes = st.integers(1, 6)


def in_the_open(query: Tensor, key: Tensor, value: Tensor, mask: Mask, bias: Tensor | None) -> Tensor:
    return attention(query, key, value, mask, bias)[0]


@given(
    seed=seeds,
    batch=st.integers(1, 3),
    key_value_heads=st.integers(1, 2),
    group=st.integers(1, 3),
    queries=sizes,
    keys=st.none() | sizes,  # None: as many as queries, so that the kernel's own causal mask is used
    width=sizes,
    density=st.sampled_from([None, 0.3, 0.8]),
    causal=st.booleans(),
    window=st.none() | st.integers(1, 4),
    biased=st.booleans(),
    scale=st.none() | st.floats(0.1, 1.0),
)
def test_fused_and_open_attention_agree_on_numbers_and_gradients(
    seed: int,
    batch: int,
    key_value_heads: int,
    group: int,
    queries: int,
    keys: int | None,
    width: int,
    density: float | None,
    causal: bool,
    window: int | None,
    biased: bool,
    scale: float | None,
) -> None:
    torch.manual_seed(seed)
    heads, keys = key_value_heads * group, queries if keys is None else keys
    query = torch.randn(batch, heads, queries, width, requires_grad=True)
    key = torch.randn(batch, key_value_heads, keys, width, requires_grad=True)
    value = torch.randn(batch, key_value_heads, keys, width, requires_grad=True)
    inputs = [query, key, value]
    bias = None
    if biased:
        bias = torch.randn(1, heads, queries, keys, requires_grad=True)
        inputs.append(bias)
    allowed = None if density is None else torch.rand(batch, 1, queries, keys) < density
    mask = Mask(allowed, causal, window)
    fused = fused_attention(query, key, value, mask, bias, scale)
    taken, weights = attention(query, key, value, mask, bias, scale)
    same(fused, taken)
    table = mask.table(queries, keys)
    anything = torch.ones(queries, 1) if table is None else table.any(-1, keepdim=True).float()
    same(weights.sum(-1, keepdim=True), anything.expand(batch, heads, queries, 1))
    direction = torch.randn_like(fused)
    gradients = torch.autograd.grad(fused, inputs, direction)
    for ours, expected in zip(gradients, torch.autograd.grad(taken, inputs, direction), strict=True):
        assert expected.isfinite().all()
        same(ours, expected, 1e-5)


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("fused", [False, True])
def test_a_query_with_nothing_to_attend_to_takes_in_nothing(fused: bool, biased: bool) -> None:
    mask = Mask(allowed=torch.tensor([[True, False, True], [False, False, False]]))
    query, key, value = (torch.randn(1, 2, length, 4, requires_grad=True) for length in (2, 3, 3))
    bias = torch.randn(1, 2, 2, 3) if biased else None
    taken = (fused_attention if fused else in_the_open)(query, key, value, mask, bias)
    assert (taken[:, :, 1] == 0).all()
    assert (taken[:, :, 0] != 0).all()
    gradients = torch.autograd.grad(taken.square().sum(), (query, key, value))
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert (gradients[0][:, :, 1] == 0).all()  # a query that sees nothing learns nothing
    assert (gradients[2][:, :, 1] == 0).all()  # a value that nobody sees learns nothing


@given(seed=seeds, heads=st.sampled_from([1, 2, 4]), lengths=st.lists(st.integers(0, 5), min_size=1, max_size=3))
@settings(max_examples=30)
def test_a_recording_changes_no_output(seed: int, heads: int, lengths: list[int]) -> None:
    torch.manual_seed(seed)
    part = MultiHeadAttention(8, heads, positions=ALiBi(heads))
    randomise(part)
    part.double()  # so that no rounding hides a difference
    x = torch.randn(len(lengths), 5, 8).double()
    mask = padding(torch.arange(5) < torch.tensor(lengths)[:, None])
    unseen = part(x, mask=mask)
    with record(part):
        seen = part(x, mask=mask)
    assert torch.equal(seen, unseen)
    assert torch.equal(part(x, mask=mask), unseen)
    for row, length in enumerate(lengths):
        if length == 0:
            same(seen[row], part.get_parameter("output.bias").expand(5, 8))
