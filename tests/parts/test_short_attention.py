"""When the kernels are chosen, and that torch.compile takes them. What they compute: tests/test_accelerator.py."""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from glassformer.models import transformer
from glassformer.parts import Mask, attention, short_attention
from glassformer.parts.masks import packed
from glassformer.parts.packing import Packed, Spans
from glassformer.parts.schemes import rotary
from glassformer.parts.similarity import cosine_similarity

ATTENTION = sys.modules["glassformer.parts.attention"]


def fake(heads: int = 2, length: int = 5, dtype: torch.dtype = torch.bfloat16, device: str = "cuda") -> Tensor:
    return torch.empty(3, heads, length, 8, dtype=dtype, device=device, requires_grad=True)


def test_they_are_for_short_sentences_in_16_bits_on_a_gpu_while_learning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(short_attention, "TRITON", True)
    with FakeTensorMode():
        x = fake()
        keep = torch.ones(3, 1, 1, 5, dtype=torch.bool, device="cuda")
        assert short_attention.suits(x, x, x, Mask())
        assert short_attention.suits(x, x, x, Mask(keep))
        assert not short_attention.suits(x, x, x, Mask(keep.expand(3, 1, 5, 5)))
        assert not short_attention.suits(x, fake(heads=1), fake(heads=1), Mask())
        for other in (fake(length=300), fake(dtype=torch.float32), fake(device="cpu")):
            assert not short_attention.suits(other, other, other, Mask())
        with torch.no_grad():
            assert not short_attention.suits(x, x, x, Mask())
        monkeypatch.setattr(short_attention, "TRITON", False)
        assert not short_attention.suits(x, x, x, Mask())


def in_the_open(parts: Sequence[Tensor], keep: Tensor | None, *how: Any) -> tuple[Tensor, Tensor]:
    """What is taken in, (B, H, T, K), and the weights (B, H, T, S)."""
    query_starts, key_starts, usual, scale, causal = how
    mask = Mask(None if keep is None else keep[:, None, None], causal=causal)
    if query_starts is not None:
        mask = mask & packed(Packed(query_starts, usual, usual), Packed(key_starts, usual, usual))
    query, key, value = (part.transpose(1, 2) for part in short_attention.separate(parts))
    return attention(query, key, value, mask, None, scale)


def stand_in(parts: Sequence[Tensor], *how: Any) -> tuple[Tensor, Tensor]:
    taken = in_the_open(parts, *how)[0].transpose(1, 2).contiguous()
    return taken, taken.new_zeros(taken.shape[2], taken.shape[0] * taken.shape[1])


def stand_in_back(parts: Sequence[Tensor], *others: Any) -> list[Tensor]:
    """By the formulas: autograd sees nothing of what an operator does."""
    *masks, _output, _level, slope, usual, scale, causal = others
    weights = in_the_open(parts, *masks, usual, scale, causal)[1]
    query, key, value = (part.transpose(1, 2) for part in short_attention.separate(parts))
    slope = slope.transpose(1, 2)
    by_weights = slope @ value.mT
    by_scores = weights * (by_weights - (by_weights * weights).sum(-1, keepdim=True)) * scale
    found = [torch.empty_like(part) for part in parts]
    by_parts = by_scores @ key, by_scores.mT @ query, weights.mT @ slope
    for place, gradient in zip(short_attention.separate(found), by_parts, strict=True):
        place.copy_(gradient.transpose(1, 2))
    return found


@pytest.fixture
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """The kernels' operators with stand-ins, which a switch turns on and off."""
    short_attention._attend.register_kernel("cpu")(stand_in)
    short_attention._gradients.register_kernel("cpu")(stand_in_back)

    def switch(on: bool) -> None:
        for name in ("suits", "fits"):
            monkeypatch.setattr(ATTENTION, name, lambda *_: on)

    switch(True)
    return switch


SIZES: dict[str, Any] = {"width": 16, "heads": 2, "layers": 1, "hidden": 32, "dropout": 0.0}


@pytest.mark.parametrize("how", [{}, {"positions": rotary}, {"similarity": cosine_similarity}])
def test_gradients_through_joint_products_are_those_of_separate_ones(
    on_cpu: Callable[[bool], None], how: dict[str, Any]
) -> None:
    torch.manual_seed(0)
    model = transformer(50, **SIZES, **how)
    tokens = torch.randint(50, (3, 7))
    keep = torch.arange(7).expand(3, -1) < 6
    found = []
    for on in (True, False):
        on_cpu(on)
        model.zero_grad()
        hidden = model.hidden(tokens, tokens, keep)
        torch.autograd.backward(hidden.square().sum())
        gradients = {name: part.grad.clone() for name, part in model.named_parameters() if part.grad is not None}
        found.append((hidden.detach(), gradients))
    torch.testing.assert_close(found[0], found[1], atol=1e-5, rtol=1e-4)


def test_a_model_with_them_is_compiled_in_one_piece(on_cpu: Callable[[bool], None]) -> None:
    model = transformer(50, **SIZES | {"layers": 2})
    compiled = torch.compile(model.hidden, dynamic=True, fullgraph=True, backend="aot_eager")
    for sentences, length in ((3, 5), (4, 9)):
        tokens = torch.randint(50, (sentences, length))
        keep = torch.arange(length).expand(sentences, -1) < length - 1
        got = compiled(tokens, tokens, keep)
        on_cpu(False)
        torch.testing.assert_close(got, model.hidden(tokens, tokens, keep))
        on_cpu(True)


@pytest.mark.parametrize("how", [{}, {"positions": rotary}])
def test_packed_sentences_are_compiled_in_one_piece(on_cpu: Callable[[bool], None], how: dict[str, Any]) -> None:
    model = transformer(50, **SIZES, **how)
    ends = (0, 3, 7, 9), (0, 4, 9, 9)
    sentences = Spans(*(Packed(torch.tensor(starts, dtype=torch.int32), 5, 4) for starts in ends))
    source, target = torch.randint(50, (2, 9)), torch.randint(50, (2, 9))
    compiled = torch.compile(model.hidden, dynamic=False, fullgraph=True, backend="aot_eager")
    found = []
    with torch.autocast("cpu", torch.bfloat16):
        for hidden, on in ((compiled, True), (model.hidden, False)):
            on_cpu(on)
            model.zero_grad()
            got = hidden(source, target, None, sentences)
            torch.autograd.backward(got.float().square().sum())
            gradient = model.get_parameter("encoder.blocks.0.attention.part.query.weight").grad
            found.append((got.detach().float(), None if gradient is None else gradient.clone()))
    torch.testing.assert_close(found[0], found[1], atol=5e-2, rtol=5e-2)


def test_a_model_on_a_device_without_autocast_gives_shapes() -> None:
    with torch.device("meta"):
        model, tokens = transformer(50, **SIZES), torch.zeros(2, 7, dtype=torch.long)
        assert model(tokens, tokens).shape == (2, 7, 50)
