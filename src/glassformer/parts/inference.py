"""Faster copies of a model for decoding on a CPU: with packed matrices, or in whole numbers of 8 bits.

Scoring a whole vocabulary is the largest product of a decoding step: one matrix, read once a step, for few vectors.
oneDNN's kernels do it a third faster when the matrix was *packed*, laid out in the order in which they read it; on some
processors (`linear`) that pays for small matrices, too. The numbers stay the same, up to rounding.

A *quantised* part multiplies whole numbers of 8 bits:

    y = (x_q W_qᵀ) · (scale of x) · (scale of W) + b

Each row of W is scaled so that its largest entry is ±127, and each token's vector too: a token has a scale of its own,
so its batch mates change nothing. CPUs without VNNI instructions add two products in 16 bits, and would overflow: there
a token's largest entry is ±63.

Linear parts over the same vectors, such as queries, keys and values, are *joined*: one product for all of them.

B batch, T length, D inputs, F outputs
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NoReturn, Self

import torch
from torch import Tensor, nn

from glassformer.errors import ConfigurationError, GlassformerError
from glassformer.parts import cpu_kernels
from glassformer.parts.linear import ONEDNN, Linear
from glassformer.parts.linears import LinearPart, Model, swap_linears
from glassformer.parts.lora import merged, using

VNNI = torch.cpu._is_vnni_supported()  # sums of 8-bit products in 32 bits
PACKED_LEAST = 2**16 if ONEDNN else 2**20  # weights: with fewer, PyTorch's own kernels are as fast
QUANTISED_LEAST = 2**17 if VNNI else 2**18  # weights: with fewer, PyTorch's rounding takes longer than it saves
COMPILED_LEAST = 2**14  # weights, where rounding is a kernel of ours
ROWS = 64  # how many vectors a packed layout is made for; it serves any number
LARGEST = 127 if VNNI else 63  # of a token's numbers in 8 bits, which are stored unsigned, around LARGEST + 1
JOINED: tuple[tuple[str, ...], ...] = ("query", "key", "value"), ("gate", "expand")  # parts over the same vectors


class Unsaveable(nn.Module):
    """A linear part whose weights cannot be saved: their layout serves this process alone, and never changes."""

    kind: str
    inputs: int
    outputs: int
    weight: Tensor
    bias: Tensor | None

    def __init__(self) -> None:
        super().__init__()
        self.eval()  # or else each step of decoding would switch it, and switch it back

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

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        super().__init__()
        if weight.device.type != "cpu" or not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
            raise ConfigurationError(f"8-bit parts need a CPU and PyTorch's oneDNN kernels, not {weight.device}")
        weight = weight.detach().float()
        scales = weight.abs().amax(dim=1).clamp(min=1e-12) / 127  # (F)
        whole = (weight / scales[:, None]).round().to(torch.int8)  # (F, D)
        self.outputs, self.inputs = weight.shape
        if cpu_kernels.multiplies() and self.inputs % cpu_kernels.FOUR == 0:
            tiles = cpu_kernels.tiled(whole, scales, bias)
            self.product: Callable[[Tensor], Tensor] = lambda x: cpu_kernels.multiply(x, tiles)
        else:
            self.product = OneDNNProduct(whole, scales, bias)

    def forward(self, x: Tensor) -> Tensor:
        """Vectors (B, T, D) to (B, T, F)."""
        return self.product(x)


class OneDNNProduct:
    """A matrix (F, D) in 8 bits, with a scale for each row, by PyTorch's kernels."""

    def __init__(self, whole: Tensor, scales: Tensor, bias: Tensor | None) -> None:
        self._weight = torch.ops.onednn.qlinear_prepack(whole, None)
        self._scales, self._zeros = scales, torch.zeros(len(whole), dtype=torch.int32)
        self._bias = None if bias is None else bias.detach().float()

    def __call__(self, x: Tensor) -> Tensor:
        """Vectors (B, T, D) to (B, T, F)."""
        largest = x.abs().amax(dim=-1, keepdim=True).clamp_(min=1e-12)  # (B, T, 1)
        whole = (x * (LARGEST / largest)).round_().to(torch.int8)  # PyTorch is slow at float32 to uint8
        whole = whole.view(torch.uint8).add_(LARGEST + 1)  # from 1 on: modulo 256, so -LARGEST becomes 1
        tokens, weights = (
            (whole, 1 / LARGEST, LARGEST + 1),
            (self._weight, self._scales, self._zeros),
        )  # scale and zero each
        result: tuple[object, ...] = (None, 1.0, 0, torch.float32, "none", [], "")  # no bias yet, in float32 as it is
        y: Tensor = torch.ops.onednn.qlinear_pointwise(*tokens, *weights, *result)  # (B, T, F)
        y = y.mul_(largest)
        return y if self._bias is None else y.add_(self._bias)


class JoinedLinear(Unsaveable):
    """One of several linear parts over the same vectors, whose matrices lie one after the other in a whole.

    A product of few vectors takes little longer with three times as many outputs.
    """

    def __init__(self, whole: nn.Module, first: int, outputs: int, inputs: int) -> None:
        super().__init__()
        self.kind = getattr(whole, "kind", "packed")
        self.whole, self.first, self.outputs, self.inputs = whole, first, outputs, inputs

    def forward(self, x: Tensor) -> Tensor:
        """Vectors (B, T, D) to (B, T, F)."""
        return self.whole(x)[..., self.first : self.first + self.outputs]  # type: ignore[no-any-return]


Make = Callable[[LinearPart], nn.Module | None]  # a linear part for inference; None: the part itself is as fast


def join(model: Model, make: Make) -> Model:
    """The model with linear parts over the same vectors joined, where they are plain and `make` makes a whole of them.

    Cross-attention reads its queries elsewhere than keys and values.
    """
    crossing = {id(part) for each in model.modules() for part in _parts_of(getattr(each, "cross_attention", None))}
    for part in model.modules():
        for names in JOINED:
            names = names[1:] if id(part) in crossing and names[0] == "query" else names
            parts: list[Any] = [getattr(part, name, None) for name in names]
            if not all(type(each) in (nn.Linear, Linear) for each in parts):
                continue
            if any(_layout(each) != _layout(parts[0]) for each in parts):
                continue
            whole, first = make(_concatenated(parts)), 0
            if whole is None:
                continue
            for name, each in zip(names, parts, strict=True):
                setattr(part, name, JoinedLinear(whole, first, each.out_features, each.in_features))
                first += each.out_features
    return model


def _parts_of(module: nn.Module | None) -> Iterable[nn.Module]:
    return () if module is None else module.modules()


def _concatenated(parts: list[nn.Linear]) -> Linear:
    """One linear part with the outputs of several."""
    whole = Linear(parts[0].in_features, sum(each.out_features for each in parts), bias=False, device="meta")
    whole.weight = nn.Parameter(torch.cat([each.weight.detach() for each in parts]), requires_grad=False)
    if parts[0].bias is not None:
        whole.bias = nn.Parameter(torch.cat([each.bias.detach() for each in parts]), requires_grad=False)
    return whole


def _layout(part: nn.Linear) -> tuple[object, ...]:
    return part.in_features, part.weight.dtype, part.weight.device, part.bias is None


def together(x: Tensor, *parts: nn.Module) -> list[Tensor]:
    """Several linear parts over the same vectors (B, T, D): joined ones by one product."""
    first = parts[0]
    if isinstance(first, JoinedLinear) and all(getattr(part, "whole", None) is first.whole for part in parts):
        y = first.whole(x)
        return [y[..., part.first : part.first + part.outputs] for part in parts]  # type: ignore[operator]
    return [part(x) for part in parts]


def weights_state(model: nn.Module) -> tuple[object, ...]:
    """Which weights a model has, and how often each was changed: equal as long as a packed copy is up to date."""
    weights = (*model.parameters(), *model.buffers())
    versions = ((id(each), each.data_ptr(), 0 if each.is_inference() else each._version) for each in weights)
    return id(model), tuple(versions), using(model)


def pack(model: Model) -> Model:
    """A copy of a model for inference, which shares its weights but has its large linear parts packed, or joined.

    Where there is nothing to gain (on a CPU in 16 bits, with a small vocabulary) the copy is as the model was. A packed
    copy cannot be saved: save the original, and pack it again after loading.
    """
    copied = merged(model, shared=(*model.parameters(), *model.buffers()))
    return swap_linears(join(copied, lambda whole: whole if whole.weight.is_cuda else _packed(whole)), _packed)


def quantise(model: Model, least: int | None = None) -> Model:
    """A copy of a model for inference: linear parts of `least` weights or more compute in 8 bits, the rest in float32.

    `least` is where 8 bits begin to be faster, if it is not given.
    It cannot be saved: save the original, and quantise it again after loading.
    """
    if least is None:
        least = COMPILED_LEAST if cpu_kernels.multiplies() else QUANTISED_LEAST

    def in_8_bits(part: LinearPart) -> nn.Module | None:
        return Int8Linear(part.weight, part.bias) if part.weight.numel() >= least else _packed(part)

    copied = merged(model).float().eval().requires_grad_(False)
    return swap_linears(join(copied, in_8_bits), in_8_bits)


def _packed(part: LinearPart) -> PackedLinear | None:
    """A linear part laid out for oneDNN, if that is faster."""
    weight = part.weight
    gains = weight.device.type == "cpu" and weight.dtype == torch.float32 and weight.numel() >= PACKED_LEAST
    available = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return PackedLinear(weight, part.bias) if gains and available else None
