"""LoRA: leave a trained matrix as it is, and learn a thin one beside it.

    y = W x + b + s · B A dropout(x),    s = alpha / R   (or alpha / √R)

A begins as noise and B as zeros, so that an adapted model begins as its base, bit for bit. Only A and B learn:
R (D + F) numbers instead of D · F. Several such adapters can stand over one base, of which one is in use at a time.

An adapted part keeps the names of its weight and bias; the adapter's stand below it: `query.adapters.default.down`.

B batch, T length, D inputs, F outputs, R rank
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Self

import torch
from torch import Tensor, nn

from glassformer.errors import ConfigurationError
from glassformer.parts.checks import check_fraction, check_positive
from glassformer.parts.dropout import Dropout
from glassformer.parts.embeddings import Head, TiedHead
from glassformer.parts.linear import Linear, linear
from glassformer.parts.linears import LinearPart, Model, linears, swap_linears

DEFAULT = "default"  # the name of an adapter that was given none


@dataclass(frozen=True)
class LoRA:
    """The numbers of an adapter, and a linear part to build models with: `transformer(…, linear=LoRA(rank=8))`."""

    rank: int = 8
    alpha: float = 16.0
    dropout: float = 0.0
    rank_stabilised: bool = False  # divide alpha by √R instead of R: "rsLoRA"

    def __post_init__(self) -> None:
        check_positive(rank=self.rank)
        check_fraction(dropout=self.dropout)
        if not 0 < self.alpha < math.inf:
            raise ConfigurationError(f"alpha must be a number above 0, not {self.alpha}")

    @property
    def scale(self) -> float:
        """The factor of B A."""
        return self.alpha / (math.sqrt(self.rank) if self.rank_stabilised else self.rank)

    def __call__(self, inputs: int, outputs: int, bias: bool = True) -> LoRALinear:
        """A linear part with an adapter."""
        part = LoRALinear(Linear(inputs, outputs, bias=bias))
        part.add(DEFAULT, self)
        return part


class LowRank(nn.Module):
    """s · B A dropout(x): `down` is A (R, D), `up` is B (F, R)."""

    def __init__(self, inputs: int, outputs: int, lora: LoRA) -> None:
        super().__init__()
        self.lora, self.dropout = lora, Dropout(lora.dropout)
        self.down = nn.Parameter(torch.randn(lora.rank, inputs) / lora.rank)
        self.up = nn.Parameter(torch.zeros(outputs, lora.rank))

    def forward(self, x: Tensor) -> Tensor:
        """What is added for vectors (B, T, D): (B, T, F)."""
        return linear(linear(self.dropout(x), self.down), self.up) * self.lora.scale

    def extra_repr(self) -> str:
        return f"rank={self.lora.rank}, alpha={self.lora.alpha:g}"


class LoRALinear(Linear):
    """A linear part, frozen, and its adapters; made of a linear part, whose weight it takes over or, if tied, shares.

    Merged, it computes as fast as its base, by a matrix of its own: the base's is kept as it is. So unmerging gives
    the very bits back, and a tied head never changes the embedding that reads. To train is to unmerge.
    """

    whole: Tensor | None  # W + s · B A, while merged

    def __init__(self, part: LinearPart) -> None:
        super().__init__(part.weight.shape[1], part.weight.shape[0], bias=False, device="meta")
        self.weight, self.bias = part.weight, part.bias  # type: ignore[assignment]
        self.kind = Head if isinstance(part, Head | TiedHead) else Linear
        self.adapters = nn.ModuleDict()
        self.using: str | None = None
        self.register_buffer("whole", None, persistent=False)
        self.train(part.training).requires_grad_(False)

    def add(self, name: str, lora: LoRA) -> None:
        """One more adapter, which learns and is used from now on."""
        if not name or "." in name:
            raise ConfigurationError(f'an adapter cannot be named "{name}": a name has a letter and no dot')
        if name in self.adapters:
            raise ConfigurationError(f'there already is an adapter named "{name}"')
        self.whole = None
        self.adapters[name] = LowRank(self.in_features, self.out_features, lora).to(self.weight).train(self.training)
        self.using = name

    def adapter(self) -> LowRank | None:
        """The adapter in use."""
        return None if self.using is None else self.adapters[self.using]  # type: ignore[return-value]

    def forward(self, x: Tensor) -> Tensor:
        """Vectors (B, T, D) to (B, T, F)."""
        if self.whole is not None:
            return linear(x, self.whole, self.bias)
        y, adapter = linear(x, self.weight, self.bias), self.adapter()
        return y if adapter is None else y + adapter(x)

    @torch.no_grad()
    def sum(self) -> Tensor:
        """W + s · B A, (F, D), added in float32 or better; without an adapter in use, W itself."""
        adapter = self.adapter()
        if adapter is None:
            return self.weight
        precision = torch.promote_types(adapter.up.dtype, torch.float32)
        product = adapter.up.to(precision) @ adapter.down.to(precision) * adapter.lora.scale
        return (self.weight.to(product) + product).to(self.weight)

    def plain(self) -> Linear:
        """The same function as a part without adapters."""
        with torch.device("meta"):
            part = self.kind(self.in_features, self.out_features, bias=self.bias is not None)
        weight = self.sum()
        part.weight = self.weight if weight is self.weight else nn.Parameter(weight, self.weight.requires_grad)
        part.bias = self.bias
        return part.train(self.training)

    def train(self, mode: bool = True) -> Self:
        if mode:
            self.whole = None  # what is merged cannot learn
        return super().train(mode)

    def _load_from_state_dict(self, *args: Any) -> None:
        self.whole = None  # which would be of the old weights
        super()._load_from_state_dict(*args)


def adapt(
    model: Model,
    rank: int = 8,
    alpha: float = 16.0,
    dropout: float = 0.0,
    targets: Iterable[str] = ("query", "value"),
    name: str = DEFAULT,
) -> Model:
    """The model, with an adapter on each linear part that one of the `targets` names; nothing else learns now.

    A target is a dotted name, or the end of one, with `*` for anything: `query`, `encoder.*.query`, `*.output`.
    """
    found = linears(model)
    chosen: set[LinearPart] = set()
    for target in targets:
        parts = {part for each, part in found.items() if fnmatchcase(f".{each}", f"*.{target}")}
        if not parts:
            known = ", ".join(dict.fromkeys(re.sub(r"\.\d+\b", ".*", each) for each in found)) or "it has none"
            raise ConfigurationError(f'no linear part of this model is named "{target}": {known}')
        chosen |= parts
    lora = LoRA(rank, alpha, dropout)
    return attach(model, {each: lora for each, part in found.items() if part in chosen}, name)


def attach(model: Model, loras: Mapping[str, LoRA], name: str = DEFAULT) -> Model:
    """The model, with an adapter of these numbers on each of the linear parts named; nothing else learns now."""
    found = linears(model)
    wanted = {found[each]: lora for each, lora in loras.items()}

    def adapted(part: LinearPart) -> LoRALinear | None:
        if part not in wanted:
            return None
        new = part if isinstance(part, LoRALinear) else LoRALinear(part)
        new.add(name, wanted[part])
        return new

    if name in adapters(model):
        raise ConfigurationError(f'the model already has an adapter named "{name}": choose another name')
    model = swap_linears(model, adapted)
    for each, parameter in model.named_parameters():
        parameter.requires_grad_(f"adapters.{name}." in each)
    use(model, name)
    return model


def lora_parts(model: nn.Module) -> dict[str, LoRALinear]:
    """The adapted parts of a model by their dotted names, each once."""
    return {name: part for name, part in model.named_modules() if isinstance(part, LoRALinear)}


def adapters(model: nn.Module) -> list[str]:
    """The names of a model's adapters."""
    return list(dict.fromkeys(name for part in lora_parts(model).values() for name in part.adapters))


def use(model: nn.Module, name: str | None) -> None:
    """Compute with the adapter of this name from now on, unmerged; None: with the base alone."""
    known = adapters(model)
    if name is not None and name not in known:
        raise ConfigurationError(f'the model has no adapter named "{name}": it has {", ".join(known) or "none"}')
    for part in lora_parts(model).values():
        part.whole = None
        part.using = name if name is not None and name in part.adapters else None


def using(model: nn.Module) -> str | None:
    """The name of the adapter in use."""
    return next((part.using for part in lora_parts(model).values() if part.using is not None), None)


def merge(model: nn.Module) -> None:
    """Add the adapter in use to the matrices it stands beside: as fast as the base, and undone to the bit."""
    for part in lora_parts(model).values():
        part.whole = None if part.using is None else part.sum()


def unmerge(model: nn.Module) -> None:
    """Undo `merge`."""
    for part in lora_parts(model).values():
        part.whole = None


def merged(model: Model, shared: Iterable[Tensor] = ()) -> Model:
    """A plain copy that computes the same without LoRA: to write for others, to pack, to quantise.

    A tied head with an adapter in use is a head of its own there. `shared` tensors are not copied.
    """
    copied = copy.deepcopy(model, {id(tensor): tensor for tensor in shared})
    return swap_linears(copied, lambda part: part.plain() if isinstance(part, LoRALinear) else None)
