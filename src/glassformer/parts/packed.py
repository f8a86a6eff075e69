"""Packed: a head whose matrix lies in memory as the CPU wants to read it, for faster decoding.

Scoring a whole vocabulary is the largest product of a decoding step: one matrix, read once a step, for few vectors.
oneDNN's kernels do it a third faster when the matrix was laid out for them beforehand. The numbers stay the same, up to
rounding.

B batch, T length, D model width, V vocabulary
"""

from __future__ import annotations

import copy
from typing import NoReturn, Self

import torch
from torch import Tensor, nn

from glassformer.errors import GlassformerError
from glassformer.parts.linears import Model, matrix, swap_linears
from glassformer.parts.lora import flatten

LEAST = 2**20  # weights: with fewer, the usual kernels are as fast
ROWS = 64  # how many vectors the layout is made for; it serves any number


class OnlyHere(nn.Module):
    """A part whose weights are laid out for this process alone: its numbers never change, and no file can hold them."""

    kind = "packed"
    inputs: int
    outputs: int

    def __copy__(self) -> Self:
        """Itself: packed weights cannot be copied, and need not be."""
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        """Itself, for the same reason."""
        return self

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Refuse to be written."""
        raise GlassformerError(
            f"a {self.kind} model cannot be saved: save the original, and make this one of it again after loading"
        )

    def _save_to_state_dict(self, *_: object) -> NoReturn:
        self.__reduce_ex__(None)

    def extra_repr(self) -> str:
        """Its sizes, for print(model)."""
        return f"inputs={self.inputs}, outputs={self.outputs}"


class PackedLinear(OnlyHere):
    """A linear part with its matrix laid out for oneDNN, made from a trained one's; for inference only."""

    weight: Tensor
    bias: Tensor | None

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        super().__init__()
        self.outputs, self.inputs = weight.shape
        packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), ROWS)
        self.register_buffer("weight", packed, persistent=False)
        self.register_buffer("bias", None if bias is None else bias.detach(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Vectors (B, T, D) to (B, T, V)."""
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")
        return y


def pack(model: Model) -> Model:
    """A copy of a model for inference, which shares its weights but has its large linear parts packed.

    Where there is nothing to gain (on a GPU, in 16 bits, with a small vocabulary) the copy is as the model was.
    A packed copy cannot be saved: save the original, and pack it again after loading.
    """
    shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    return swap_linears(flatten(copy.deepcopy(model, shared)), lambda part: _packed(*matrix(part)))


def _packed(weight: Tensor, bias: Tensor | None) -> nn.Module | None:
    if weight.device.type != "cpu" or weight.dtype != torch.float32 or weight.numel() < LEAST:
        return None
    return PackedLinear(weight, bias) if torch.backends.mkldnn.is_available() else None  # type: ignore[no-untyped-call]
