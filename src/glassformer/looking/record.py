"""Recording: run a model, and keep the weights of its attention and the states of its recurrent cells.

    with record(model) as trace:
        model(source, target)
    trace.attention("cross", layer=0)  # (B, H, T, S)
    trace.cell("encoder", layer=0)["forget"]  # (B, T, W), of a recurrent model

While a recording is active, attention and recurrent layers are computed in the open instead of by fused kernels, to
the same numbers.

B batch, H heads, T query length or steps, S key length, W width of a state
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.errors import GlassformerError, InputError
from glassformer.parts.alignment import Alignment
from glassformer.parts.attention import MultiHeadAttention
from glassformer.parts.blocks import DecoderBlock, EncoderBlock
from glassformer.parts.recurrent import Observe, Phases, Recurrent
from glassformer.parts.recurrent_stacks import RecurrentDecoder, RecurrentEncoder

Watched = MultiHeadAttention | Alignment | Recurrent
# The kind of a part in a trace, by the attribute that holds it in its block or stack.
KIND_OF_PART: dict[type[nn.Module], dict[str, str]] = {
    EncoderBlock: {"attention": "encoder"},
    DecoderBlock: {"self_attention": "decoder", "cross_attention": "cross"},
    RecurrentEncoder: {"layers": "encoder"},
    RecurrentDecoder: {"layers": "decoder", "attention": "cross"},
}


@dataclass
class Trace:
    """What a recording holds: the weights of every attention, by kind and layer, one tensor a call.

    Kinds are "encoder", "decoder" (self-attention) and "cross"; an attention outside any block is "attention". Of
    recurrent layers it holds gates and states by name, by kind ("encoder", "decoder"; outside any stack
    "recurrent"), layer and direction.
    """

    calls: dict[tuple[str, int], list[Tensor]] = field(default_factory=dict)
    cells: dict[tuple[str, int, str], list[Phases]] = field(default_factory=dict)

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
            raise InputError("the number of sentences changed between calls: read them one by one from `calls`")
        if len(calls) > 1 and any(weights.shape[2] > 1 for weights in calls):
            raise InputError(f"the {kind} attention ran {len(calls)} times: read the calls one by one from `calls`")
        keys = max(weights.shape[-1] for weights in calls)
        return torch.cat([F.pad(weights, (0, keys - weights.shape[-1])) for weights in calls], dim=2)

    def cell(self, kind: str, layer: int = 0, direction: str = "forward") -> Phases:
        """What a recurrent layer computed at each step, by name, in the order of its phases: (B, T, W) each.

        Several calls, such as the steps of decoding, follow each other in time.
        """
        if (kind, layer, direction) not in self.cells:
            known = ", ".join(f"{kind} {layer} {way}" for kind, layer, way in self.cells) or "nothing of any"
            raise InputError(f"nothing was recorded of cells {kind} {layer} {direction}; there is: {known}")
        calls = self.cells[kind, layer, direction]
        if len({len(phases["hidden"]) for phases in calls}) > 1:
            raise InputError("the number of sentences changed between calls: read them one by one from `cells`")
        return {name: torch.cat([phases[name] for phases in calls], dim=1) for name in calls[0]}


@contextmanager
def record(model: nn.Module) -> Iterator[Trace]:
    """Keep the attention weights, gates and states of everything that `model` does inside the `with`."""
    trace = Trace()
    watched = list(_watched(model))
    if any(part.observe is not None for _, part in watched):
        raise GlassformerError("this model is being recorded already: use one record() at a time")
    counts: Counter[tuple[str, bool]] = Counter()  # the layers so far of each kind, of attention and of cells
    try:
        for kind, part in watched:
            layer = counts[kind, isinstance(part, Recurrent)]
            if isinstance(part, Recurrent):
                part.observe = _keep_cells(trace.cells, kind, layer)
                counts[kind, True] += part.fused.num_layers
            else:
                part.observe = _keep_in(trace.calls.setdefault((kind, layer), []))
                counts[kind, False] += 1
        yield trace
    finally:
        for _, part in watched:
            part.observe = None


def _keep_in(calls: list[Tensor]) -> Callable[[Tensor], None]:
    return lambda weights: calls.append(weights.detach())


def _keep_cells(cells: dict[tuple[str, int, str], list[Phases]], kind: str, first: int) -> Observe:
    """An observer that keeps gates and states of layers, of which the lowest has the number `first`."""

    def keep(layer: int, direction: str, phases: Phases) -> None:
        cells.setdefault((kind, first + layer, direction), []).append(phases)

    return keep


def _watched(model: nn.Module) -> Iterator[tuple[str, Watched]]:
    """Every part of a model that can be watched with its kind, in the order of the layers."""
    tables = KIND_OF_PART.items()
    blocks = [(block, kinds) for block in model.modules() for kind, kinds in tables if isinstance(block, kind)]
    seen: set[nn.Module] = set()
    for block, kinds in [*blocks, (model, {})]:  # last, what stands in no block
        for name, part in block.named_modules():
            if isinstance(part, Watched) and part not in seen:
                seen.add(part)
                alone = "recurrent" if isinstance(part, Recurrent) else "attention"
                yield kinds.get(name.split(".")[0], alone), part
