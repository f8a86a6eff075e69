"""Linear parts: y = x Wᵀ + b, by the kernels that suit the processor.

PyTorch multiplies float32 matrices on a CPU by MKL, which leaves AVX-512 unused on processors that are not Intel's.
oneDNN, which PyTorch has too, uses it on all of them, and takes half the time there. The numbers are the same, up to
rounding.

N vectors, D inputs, F outputs; M matrices of a stack, R rows of one, S rows of another
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.parts.cpu_kernels import compiled

MakeLinear = Callable[..., nn.Module]  # builds a linear part: (inputs, outputs, bias=…)
LEAST = 2**22  # multiplications of a product: with fewer, laying out the matrix takes longer than it saves


def made_by_intel() -> bool:
    """Whether this is a processor that MKL's fastest kernels accept."""
    facts = Path("/proc/cpuinfo")
    try:
        with facts.open(encoding="utf-8", errors="replace") as file:
            text = file.read(4096)
    except OSError:
        text = os.environ.get("PROCESSOR_IDENTIFIER", "")
    return "GenuineIntel" in text


def prefers_onednn() -> bool:
    """Whether oneDNN multiplies float32 matrices faster than what PyTorch calls by itself on this processor."""
    wide = torch.backends.cpu.get_cpu_capability() == "AVX512"
    return wide and torch.backends.mkldnn.is_available() and not made_by_intel()  # type: ignore[no-untyped-call]


ONEDNN = prefers_onednn()


def kernels() -> str:
    """The instructions that this processor's kernels use, whose kernels multiply matrices in float32, and decode."""
    products, steps = "oneDNN" if ONEDNN else "PyTorch", "kernels in C" if compiled() else "PyTorch"
    return f"{torch.backends.cpu.get_cpu_capability()}, products by {products}, steps of decoding by {steps}"


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x Wᵀ + b for vectors x (…, D) and a matrix W (F, D): (…, F)."""
    if not (ONEDNN and _suits(x, weight)):
        return F.linear(x, weight, bias)
    learns = x.requires_grad or weight.requires_grad or (bias is not None and bias.requires_grad)
    if learns and torch.is_grad_enabled():
        return _Product.apply(x, weight, bias)  # type: ignore[no-any-return,no-untyped-call]
    return _product(x, weight, bias)


def products(one: Tensor, other: Tensor, total: Tensor | None = None, alpha: float = 1.0, beta: float = 1.0) -> Tensor:
    """α A Bᵀ for two stacks of matrices, (M, R, D) and (M, S, D), plus β times a total, (M, R, S)."""
    if ONEDNN and len(one) and _suits(one[0], other[0]):
        each = torch.stack([_product(a, b, None) for a, b in zip(one, other, strict=True)]).mul_(alpha)
        return each if total is None else each.add_(total, alpha=beta)
    if total is None:
        return one @ other.mT if alpha == 1 else alpha * (one @ other.mT)
    return torch.baddbmm(total, one, other.mT, beta=beta, alpha=alpha)


def _suits(x: Tensor, weight: Tensor) -> bool:
    """Whether oneDNN is to multiply these two."""
    plain = x.is_cpu and x.dtype == weight.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
    return plain and x.dim() > 1 and not torch.compiler.is_compiling() and x.numel() * len(weight) >= LEAST


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")  # type: ignore[no-any-return]


class _Product(torch.autograd.Function):
    """The product by oneDNN, and its slopes by two more."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _product(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        by_x = by_weight = by_bias = None
        if ctx.needs_input_grad[0]:
            by_x = linear(slope, weight.T)  # (…, D)
        rows = slope.flatten(0, -2)  # (N, F)
        if ctx.needs_input_grad[1]:
            by_weight = linear(rows.T, x.flatten(0, -2).T)  # (F, D)
        if ctx.needs_input_grad[2]:
            by_bias = rows.sum(dim=0)
        return by_x, by_weight, by_bias


class Linear(nn.Linear):
    """y = x Wᵀ + b, by the kernel that suits the processor."""

    def forward(self, x: Tensor) -> Tensor:
        """Vectors (…, D) to (…, F)."""
        return linear(x, self.weight, self.bias)
