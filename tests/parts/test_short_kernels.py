"""The kernels themselves, without a GPU: in Triton's interpreter, where somebody has put Triton on the path.

pip install --target /tmp/triton triton==3.6.0 'numpy<2.3'
TRITON_INTERPRET=1 PYTHONPATH=/tmp/triton pytest tests/parts/test_short_kernels.py
"""

import os
from typing import Any

import pytest
import torch
from torch import Tensor

from glassformer.parts import Mask, attention
from glassformer.parts.masks import packed
from glassformer.parts.packing import Packed
from glassformer.parts.short_attention import separate

pytest.importorskip("triton")
if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("there is no GPU, and TRITON_INTERPRET is not 1", allow_module_level=True)

from glassformer.parts import short_kernels

HEADS = 2


def parts_of(joined: int, queries: int, keys: int, width: int) -> list[Tensor]:
    """Queries, keys and values: all in one tensor, the latter two in one, or each in its own."""
    shapes = {3: [(queries, 3)], 2: [(queries, 1), (keys, 2)], 1: [(queries, 1), (keys, 1), (keys, 1)]}
    return [torch.randn(2, length, held, HEADS, width) for length, held in shapes[joined]]


def compare(parts: list[Tensor], mask: Mask, keep: Tensor | None, usual: int) -> None:
    """What the kernels give, and their gradients, against attention in the open."""
    scale = parts[0].shape[-1] ** -0.5
    own = [part.clone().requires_grad_() for part in parts]
    query, key, value = (part.transpose(1, 2) for part in separate(own))
    exact = attention(query, key, value, mask, None, scale)[0].transpose(1, 2).contiguous()
    slope = torch.randn(exact.shape)
    wanted = torch.autograd.grad(exact, own, slope)
    starts: Any = (None, None) if mask.spans is None else (mask.spans.queries.starts, mask.spans.keys.starts)
    how = keep, *starts, usual, scale, mask.causal
    output, level = short_kernels.forward(*separate(parts), *how)
    torch.testing.assert_close(output, exact, atol=1e-5, rtol=1e-5)
    gradients = [torch.full_like(part, torch.nan) for part in parts]  # every place is to be written
    short_kernels.backward(separate(parts), separate(gradients), output, level, slope, *how)
    torch.testing.assert_close(gradients, [*wanted], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("joined", "same", "causal", "width", "usual"),
    [(3, True, True, 64, 16), (3, True, False, 16, 64), (2, False, False, 48, 20), (1, False, False, 32, 16)],
)
def test_packed_sentences(joined: int, same: bool, causal: bool, width: int, usual: int) -> None:
    torch.manual_seed(0)
    lengths = torch.tensor([[3, 16, 1, 40, 0, 70, 17, 5], [9, 20, 2, 33, 4, 90, 0, 11]])
    starts = torch.cat((torch.zeros(2, 1), lengths.cumsum(1)), 1).int()
    read, asked = (Packed(each, 90, usual) for each in (starts[0] if same else starts[1], starts[0]))
    parts = parts_of(joined, int(asked.starts[-1]), int(read.starts[-1]), width)
    compare(parts, packed(asked, read) & Mask(causal=causal), None, usual)


@pytest.mark.parametrize(
    ("queries", "keys", "width", "masked", "causal"),
    [(5, 5, 8, True, False), (20, 20, 64, False, True), (33, 33, 32, True, True), (70, 130, 48, True, False)],
)
def test_padded_sentences(queries: int, keys: int, width: int, masked: bool, causal: bool) -> None:
    torch.manual_seed(0)
    keep = torch.rand(2, keys) > 0.3
    keep[1] = False  # a sentence of nothing but padding
    mask = Mask(keep[:, None, None] if masked else None, causal=causal)
    compare(parts_of(2, queries, keys, width), mask, keep if masked else None, max(queries, keys))
