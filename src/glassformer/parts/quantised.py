"""Quantised: linear parts that compute in whole numbers of 8 bits, for faster decoding on a CPU.

    y = (x_q W_qᵀ) · (scale of x) · (scale of W) + b

Each row of W is scaled so that its largest entry is ±127, and each token's vector so that its largest is ±63: a token
has a scale of its own, so its batch mates change nothing. (One bit fewer for tokens, because CPUs without the newest
instructions add two products in 16 bits, and would overflow.)

B batch, T length, D inputs, F outputs
"""

from __future__ import annotations

import copy
from typing import TypeVar

import torch
from torch import Tensor, nn

from glassformer.errors import ConfigurationError
from glassformer.parts.embeddings import TiedHead

Model = TypeVar("Model", bound=nn.Module)

ZERO = 64  # tokens are stored unsigned, around this number


class Int8Linear(nn.Module):
    """A linear part in 8-bit integers, made from a trained one's weights; for CPUs, and for inference only."""

    weight: Tensor
    scales: Tensor
    zeros: Tensor
    middle: Tensor
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
        self.register_buffer("middle", torch.tensor(ZERO + 0.5), persistent=False)
        self.register_buffer("bias", None if bias is None else bias.detach().float(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Vectors (B, T, D) to (B, T, F)."""
        largest = x.abs().amax(dim=-1, keepdim=True).clamp_(min=1e-12)  # (B, T, 1)
        rounded = torch.addcmul(self.middle, x, (ZERO - 1) / largest).to(torch.uint8)  # + ½, then cut off: rounded
        y: Tensor = torch.ops.onednn.qlinear_pointwise(
            rounded, 1.0, ZERO, self.weight, self.scales, self.zeros, None, 1.0, 0, torch.float32, "none", [], ""
        )  # (B, T, F)
        scale = largest / (ZERO - 1)
        return y.mul_(scale) if self.bias is None else torch.addcmul(self.bias, y, scale)

    def __deepcopy__(self, memo: dict[int, object]) -> Int8Linear:
        """Itself: its numbers never change, and oneDNN's packed weights cannot be copied."""
        return self

    def extra_repr(self) -> str:
        """Its sizes, for print(model)."""
        return f"inputs={self.inputs}, outputs={self.outputs}"


def quantise(model: Model) -> Model:
    """A copy of a model for inference, whose linear parts compute in 8-bit integers and the rest in float32.

    It cannot be saved: save the original, and quantise it again after loading.
    """
    model = copy.deepcopy(model).float().eval().requires_grad_(False)
    for module in list(model.modules()):
        for name, part in module.named_children():
            if isinstance(part, nn.Linear):
                setattr(module, name, Int8Linear(part.weight, part.bias))
            elif isinstance(part, TiedHead):
                setattr(module, name, Int8Linear(part.embedding.weight, part.bias))
    return model
