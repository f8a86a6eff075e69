"""Quantised: linear parts that compute in whole numbers of 8 bits, for faster decoding on a CPU.

    y = (x_q W_qᵀ) · (scale of x) · (scale of W) + b

Each row of W is scaled so that its largest entry is ±127, and each token's vector so that its largest is ±63: a token
has a scale of its own, so its batch mates change nothing. (One bit fewer for tokens, because CPUs without the newest
instructions add two products in 16 bits, and would overflow.)

B batch, T length, D inputs, F outputs
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from glassformer.errors import ConfigurationError
from glassformer.parts.linears import LinearPart, Model, matrix, swap_linears
from glassformer.parts.lora import flatten
from glassformer.parts.packed import OnlyHere

LEAST = 2**18  # weights: with fewer, rounding takes longer than it saves
ZERO = 64  # tokens are stored unsigned, around this number
MIDDLE = torch.tensor(ZERO + 0.5)


def rounded(x: Tensor) -> tuple[Tensor, Tensor]:
    """Each vector of (B, T, D) in whole numbers from 1 to 127, and its largest entry (B, T, 1)."""
    largest = x.abs().amax(dim=-1, keepdim=True).clamp_(min=1e-12)  # (B, T, 1)
    return torch.addcdiv(MIDDLE, x, largest, value=ZERO - 1).to(torch.uint8), largest  # + ½, then cut off: rounded


def together(x: Tensor, *parts: nn.Module) -> list[Tensor]:
    """Several linear parts over the same vectors (B, T, D), which those in 8 bits round only once."""
    if not isinstance(parts[0], Int8Linear):
        return [part(x) for part in parts]
    whole = rounded(x)
    return [part.multiply(*whole) if isinstance(part, Int8Linear) else part(x) for part in parts]


class Int8Linear(OnlyHere):
    """A linear part in 8-bit integers, made from a trained one's weights; for CPUs, and for inference only."""

    kind = "quantised"
    weight: Tensor
    scales: Tensor
    zeros: Tensor
    bias: Tensor | None

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        super().__init__()
        if weight.device.type != "cpu" or not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
            raise ConfigurationError(f"8-bit parts need a CPU and PyTorch's oneDNN kernels, not {weight.device}")
        weight = weight.detach().float()
        scales = weight.abs().amax(dim=1).clamp(min=1e-12) / 127  # (F)
        rounded = (weight / scales[:, None]).round().to(torch.int8)  # (F, D)
        self.outputs, self.inputs = weight.shape
        self.register_buffer("weight", torch.ops.onednn.qlinear_prepack(rounded, None), persistent=False)
        self.register_buffer("scales", scales, persistent=False)
        self.register_buffer("zeros", torch.zeros(self.outputs, dtype=torch.int32), persistent=False)
        self.register_buffer("bias", None if bias is None else bias.detach().float(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Vectors (B, T, D) to (B, T, F)."""
        return self.multiply(*rounded(x))

    def multiply(self, whole: Tensor, largest: Tensor) -> Tensor:
        """Vectors that are rounded already, (B, T, D), to (B, T, F)."""
        y: Tensor = torch.ops.onednn.qlinear_pointwise(
            whole,
            1 / (ZERO - 1),
            ZERO,
            self.weight,
            self.scales,
            self.zeros,
            None,
            1.0,
            0,
            torch.float32,
            "none",
            [],
            "",
        )  # (B, T, F)
        return y.mul_(largest) if self.bias is None else torch.addcmul(self.bias, y, largest)


def quantise(model: Model, least: int = LEAST) -> Model:
    """A copy of a model for inference: linear parts of `least` weights or more compute in 8 bits, the rest in float32.

    It cannot be saved: save the original, and quantise it again after loading.
    """

    def rounded_part(part: LinearPart) -> Int8Linear | None:
        weight, bias = matrix(part)
        return Int8Linear(weight, bias) if weight.numel() >= least else None

    copied = flatten(copy.deepcopy(model)).float().eval().requires_grad_(False)
    return swap_linears(copied, rounded_part)
