"""When the kernels are chosen, and that torch.compile takes them. What they compute: tests/test_accelerator.py."""

import sys

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from glassformer.models import transformer
from glassformer.parts import Mask, attention, short_attention

ATTENTION = sys.modules["glassformer.parts.attention"]


def fake(heads: int = 2, length: int = 5, dtype: torch.dtype = torch.bfloat16, device: str = "cuda") -> Tensor:
    return torch.empty(3, heads, length, 8, dtype=dtype, device=device, requires_grad=True)


def test_they_are_for_short_sentences_in_16_bits_on_a_gpu_while_learning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(short_attention, "TRITON", True)
    with FakeTensorMode():
        x = fake()
        keep = torch.ones(3, 1, 1, 5, dtype=torch.bool, device="cuda")
        assert short_attention.suits(x, x, x, None)
        assert short_attention.suits(x, x, x, keep)
        assert not short_attention.suits(x, x, x, keep.expand(3, 1, 5, 5))
        assert not short_attention.suits(x, fake(heads=1), fake(heads=1), None)
        for other in (fake(length=300), fake(dtype=torch.float32), fake(device="cpu")):
            assert not short_attention.suits(other, other, other, None)
        with torch.no_grad():
            assert not short_attention.suits(x, x, x, None)
        monkeypatch.setattr(short_attention, "TRITON", False)
        assert not short_attention.suits(x, x, x, None)


def stand_in(
    query: Tensor, key: Tensor, value: Tensor, keep: Tensor | None, scale: float, causal: bool
) -> tuple[Tensor, Tensor]:
    mask = Mask(None if keep is None else keep[:, None, None], causal=causal)
    taken, weights = attention(query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), mask, None, scale)
    return taken.transpose(1, 2).contiguous(), weights.new_zeros(weights.shape[:3])


def test_a_model_with_them_is_compiled_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    short_attention._attend.register_kernel("cpu")(stand_in)
    monkeypatch.setattr(ATTENTION, "suits", lambda *_: True)
    model = transformer(50, width=16, heads=2, layers=2, hidden=32, dropout=0.0)
    compiled = torch.compile(model.hidden, dynamic=True, fullgraph=True, backend="aot_eager")
    for sentences, length in ((3, 5), (4, 9)):
        tokens = torch.randint(50, (sentences, length))
        keep = torch.arange(length).expand(sentences, -1) < length - 1
        got = compiled(tokens, tokens, keep)
        monkeypatch.setattr(ATTENTION, "suits", lambda *_: False)
        torch.testing.assert_close(got, model.hidden(tokens, tokens, keep))
        monkeypatch.setattr(ATTENTION, "suits", lambda *_: True)
