"""Faster copies of a model for decoding on a CPU: with packed matrices, or in whole numbers of 8 bits.

Scoring a whole vocabulary is the largest product of a decoding step: one matrix, read once a step, for few vectors.
oneDNN's kernels do it a third faster when the matrix was *packed*, laid out in the order in which they read it. The
numbers stay the same, up to rounding.

A *quantised* part multiplies whole numbers of 8 bits:

    y = (x_q W_qᵀ) · (scale of x) · (scale of W) + b

Each row of W is scaled so that its largest entry is ±127, and each token's vector so that its largest is ±63: a token
has a scale of its own, so its batch mates change nothing. (One bit fewer for tokens, because CPUs without the newest
instructions add two products in 16 bits, and would overflow.)

B batch, T length, D inputs, F outputs
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.errors import ConfigurationError, GlassformerError
from glassformer.parts.linears import LinearPart, Model, swap_linears
from glassformer.parts.lora import merged, using

PACKED_LEAST = 2**20  # weights: with fewer, PyTorch's own kernels are as fast
QUANTISED_LEAST = 2**18  # weights: with fewer, rounding takes longer than it saves
ROWS = 64  # how many vectors a packed layout is made for; it serves any number
ZERO = 64  # tokens in 8 bits are stored unsigned, around this number
MIDDLE = torch.tensor(ZERO + 0.5)


class Unsaveable(nn.Module):
    """A linear part whose weights cannot be saved: their layout serves this process alone, and never changes."""

    kind: str
    inputs: int
    outputs: int
    weight: Tensor
    bias: Tensor | None

    def __copy__(self) -> Self:
        """Itself: such weights cannot be copied, and need not be."""
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        return self

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise GlassformerError(
            f"a {self.kind} model cannot be saved: save the original, and make this one of it again after loading"
        )

    def _save_to_state_dict(self, *_: object) -> NoReturn:
        self.__reduce_ex__(None)

    def extra_repr(self) -> str:
        return f"inputs={self.inputs}, outputs={self.outputs}"


class PackedLinear(Unsaveable):
    """A linear part with its matrix laid out for oneDNN, made from a trained one's; for inference only."""

    kind = "packed"

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        super().__init__()
        self.outputs, self.inputs = weight.shape
        packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), ROWS)
        self.register_buffer("weight", packed, persistent=False)
        self.register_buffer("bias", None if bias is None else bias.detach(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Vectors (B, T, D) to (B, T, F)."""
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")
        return y


class Int8Linear(Unsaveable):
    """A linear part in 8-bit integers, made from a trained one's weights; for CPUs, and for inference only."""

    kind = "quantised"
    scales: Tensor
    zeros: Tensor

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        super().__init__()
        if weight.device.type != "cpu" or not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
            raise ConfigurationError(f"8-bit parts need a CPU and PyTorch's oneDNN kernels, not {weight.device}")
        weight = weight.detach().float()
        scales = weight.abs().amax(dim=1).clamp(min=1e-12) / 127  # (F)
        whole = (weight / scales[:, None]).round().to(torch.int8)  # (F, D)
        self.outputs, self.inputs = weight.shape
        self.register_buffer("weight", torch.ops.onednn.qlinear_prepack(whole, None), persistent=False)
        self.register_buffer("scales", scales, persistent=False)
        self.register_buffer("zeros", torch.zeros(self.outputs, dtype=torch.int32), persistent=False)
        self.register_buffer("bias", None if bias is None else bias.detach().float(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Vectors (B, T, D) to (B, T, F)."""
        return self.multiply(*_rounded(x))

    def multiply(self, whole: Tensor, largest: Tensor) -> Tensor:
        """Vectors that are rounded already, (B, T, D), to (B, T, F)."""
        tokens, weights = (whole, 1 / (ZERO - 1), ZERO), (self.weight, self.scales, self.zeros)  # scale and zero each
        result: tuple[object, ...] = (None, 1.0, 0, torch.float32, "none", [], "")  # no bias yet, in float32 as it is
        y: Tensor = torch.ops.onednn.qlinear_pointwise(*tokens, *weights, *result)  # (B, T, F)
        return y.mul_(largest) if self.bias is None else torch.addcmul(self.bias, y, largest)


class JoinedLinear(Unsaveable):
    """One of several linear parts over the same vectors, whose matrices lie one after the other: one product for all.

    On a GPU, a product of few vectors takes as long with three times as many outputs.
    """

    kind = "packed"

    def __init__(self, joint: tuple[Tensor, Tensor | None], first: int, outputs: int) -> None:
        super().__init__()
        self.joint: tuple[Tensor, Tensor | None] | None = joint
        self.first, self.outputs, self.inputs = first, outputs, joint[0].shape[1]
        self.register_buffer("weight", joint[0][first : first + outputs], persistent=False)
        self.register_buffer("bias", None if joint[1] is None else joint[1][first : first + outputs], persistent=False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.joint = None  # which stays behind: from now on each for itself
        return self

    def forward(self, x: Tensor) -> Tensor:
        """Vectors (B, T, D) to (B, T, F)."""
        return F.linear(x, self.weight, self.bias)


def join(model: Model, device: str = "cuda") -> Model:
    """The model with queries, keys and values of its attentions joined, where they are plain and on such a device."""
    for part in model.modules():
        three: list[Any] = [getattr(part, name, None) for name in ("query", "key", "value")]
        if not all(type(each) is nn.Linear and each.weight.device.type == device for each in three):
            continue
        first, *others = three
        if any(_layout(each) != _layout(first) for each in others):
            continue
        bias = None if first.bias is None else torch.cat([each.bias.detach() for each in three])
        joint, place = (torch.cat([each.weight.detach() for each in three]), bias), 0
        for name, each in zip(("query", "key", "value"), three, strict=True):
            setattr(part, name, JoinedLinear(joint, place, each.out_features))
            place += each.out_features
    return model


def _layout(part: nn.Linear) -> tuple[object, ...]:
    return part.in_features, part.weight.dtype, part.weight.device, part.bias is None


def _rounded(x: Tensor) -> tuple[Tensor, Tensor]:
    """Each vector of (B, T, D) in whole numbers from 1 to 127, and its largest entry (B, T, 1)."""
    largest = x.abs().amax(dim=-1, keepdim=True).clamp_(min=1e-12)  # (B, T, 1)
    return torch.addcdiv(MIDDLE, x, largest, value=ZERO - 1).to(torch.uint8), largest  # + ½, then cut off: rounded


def together(x: Tensor, *parts: nn.Module) -> list[Tensor]:
    """Several linear parts over the same vectors (B, T, D), which those in 8 bits round only once."""
    first = parts[0]
    joined = [part for part in parts if isinstance(part, JoinedLinear)]
    if len(joined) == len(parts) and joined[0].joint is not None and joined[0].joint is joined[-1].joint:
        weight, bias = joined[0].joint
        rows = slice(joined[0].first, joined[-1].first + joined[-1].outputs)
        y = F.linear(x, weight[rows], None if bias is None else bias[rows])
        return list(torch.split(y, [part.outputs for part in joined], dim=-1))
    if not isinstance(first, Int8Linear):
        return [part(x) for part in parts]
    whole = _rounded(x)
    return [part.multiply(*whole) if isinstance(part, Int8Linear) else part(x) for part in parts]


def weights_state(model: nn.Module) -> tuple[object, ...]:
    """Which weights a model has, and how often each was changed: equal as long as a packed copy is up to date."""
    weights = (*model.parameters(), *model.buffers())
    versions = ((id(each), each.data_ptr(), 0 if each.is_inference() else each._version) for each in weights)
    return id(model), tuple(versions), using(model)


def pack(model: Model) -> Model:
    """A copy of a model for inference, which shares its weights but has its large linear parts packed.

    On a GPU, each attention computes queries, keys and values by one product. Where there is nothing to gain (on a CPU
    in 16 bits, with a small vocabulary) the copy is as the model was. A packed copy cannot be saved: save the original,
    and pack it again after loading.
    """
    available = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]

    def packed(part: LinearPart) -> PackedLinear | None:
        weight = part.weight
        gains = weight.device.type == "cpu" and weight.dtype == torch.float32 and weight.numel() >= PACKED_LEAST
        return PackedLinear(weight, part.bias) if gains and available else None

    return join(swap_linears(merged(model, shared=(*model.parameters(), *model.buffers())), packed))


def quantise(model: Model, least: int = QUANTISED_LEAST) -> Model:
    """A copy of a model for inference: linear parts of `least` weights or more compute in 8 bits, the rest in float32.

    It cannot be saved: save the original, and quantise it again after loading.
    """

    def in_8_bits(part: LinearPart) -> Int8Linear | None:
        return Int8Linear(part.weight, part.bias) if part.weight.numel() >= least else None

    return swap_linears(merged(model).float().eval().requires_grad_(False), in_8_bits)
