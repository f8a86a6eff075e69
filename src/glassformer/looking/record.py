"""Recording: run a model as usual, and keep what its attention heads looked at.

    with record(model) as trace:
        model(source, target)
    trace.attention("cross", layer=0)  # (B, H, T, S)

While a recording is active, attention is computed in the open instead of by the fused kernel, to the same numbers.

B batch, H heads, T query length, S key length
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.errors import GlassformerError, InputError
from glassformer.parts.attention import MultiHeadAttention
from glassformer.parts.blocks import DecoderBlock, EncoderBlock

# What an attention is for, by the name that it has in its block.
KINDS = {
    EncoderBlock: {"attention": "encoder"},
    DecoderBlock: {"self_attention": "decoder", "cross_attention": "cross"},
}


@dataclass
class Trace:
    """What a recording holds: the weights of every attention, by kind and layer, one tensor a call.

    Kinds are "encoder", "decoder" (self-attention) and "cross"; an attention outside any block is "attention".
    """

    calls: dict[tuple[str, int], list[Tensor]] = field(default_factory=dict)

    def layers(self, kind: str) -> int:
        """How many layers have an attention of this kind."""
        return sum(each == kind for each, _ in self.calls)

    def attention(self, kind: str, layer: int) -> Tensor:
        """The weights of one layer's heads, (B, H, T, S).

        A model that was stepped greedily made one call a step, with one query: they are joined, and keys that an
        earlier query could not see yet have weight 0. Other calls are not joined: read them from `calls`. (In a beam
        search the decoder's keys are the cache's slots, which all beams share.)
        """
        if (kind, layer) not in self.calls:
            known = ", ".join(f"{kind} {layer}" for kind, layer in self.calls) or "no attention at all"
            raise InputError(f"there is no {kind} attention in layer {layer}; there is: {known}")
        calls = self.calls[kind, layer]
        if not calls:
            raise InputError(
                f"nothing was recorded of the {kind} attention in layer {layer}: run the model inside record()"
            )
        if len({len(weights) for weights in calls}) > 1:
            raise InputError("sentences came or went between the recorded calls: read them one by one from `calls`")
        if len(calls) > 1 and any(weights.shape[2] > 1 for weights in calls):
            raise InputError(f"the {kind} attention ran {len(calls)} times: read the calls one by one from `calls`")
        keys = max(weights.shape[-1] for weights in calls)
        return torch.cat([F.pad(weights, (0, keys - weights.shape[-1])) for weights in calls], dim=2)


@contextmanager
def record(model: nn.Module) -> Iterator[Trace]:
    """Keep the attention weights of everything that `model` does inside the `with`."""
    trace = Trace()
    attentions = list(_attentions(model))
    if any(attention.observe is not None for _, attention in attentions):
        raise GlassformerError("this model is being recorded already: use one record() at a time")
    counts: dict[str, int] = {}
    try:
        for kind, attention in attentions:
            layer = counts.get(kind, 0)
            counts[kind] = layer + 1
            attention.observe = _keep_in(trace.calls.setdefault((kind, layer), []))
        yield trace
    finally:
        for _, attention in attentions:
            attention.observe = None


def _kind(block: nn.Module, name: str) -> str:
    """What the attention of this name is for in its block."""
    return next(kinds.get(name.split(".")[0], "attention") for kind, kinds in KINDS.items() if isinstance(block, kind))


def _keep_in(calls: list[Tensor]) -> Callable[[Tensor], None]:
    """An observer that keeps what it is shown."""
    return lambda weights: calls.append(weights.detach())


def _attentions(model: nn.Module) -> Iterator[tuple[str, MultiHeadAttention]]:
    """Every attention of a model with its kind, in the order of the layers."""
    inside: set[MultiHeadAttention] = set()
    for block in model.modules():
        for name, part in block.named_modules() if isinstance(block, tuple(KINDS)) else ():
            if isinstance(part, MultiHeadAttention) and part not in inside:
                inside.add(part)
                yield _kind(block, name), part
    for part in model.modules():
        if isinstance(part, MultiHeadAttention) and part not in inside:
            yield "attention", part
