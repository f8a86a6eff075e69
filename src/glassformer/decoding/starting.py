"""Starting: what a model reads before its first step. The reading of a source is captured as well.

An encoder of some hundred small kernels takes several milliseconds from Python, as long as ten captured steps. A source
is captured the second time that one of its size is read: a single text does not pay for it.

B sentences, S source length
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.decoding import capturing
from glassformer.decoding.protocol import Generator, evaluating
from glassformer.parts.fixed_cache import fixable
from glassformer.parts.masks import padding
from glassformer.parts.positions import reserve


@dataclass
class Reading:
    """A captured reading of sources of one size."""

    tokens: Tensor  # (B, S)
    keep: Tensor  # (B, S)
    state: Any  # what was read last
    replay: Callable[[], None]

    def read(self, tokens: Tensor, keep: Tensor) -> Any:
        """The state after some sources, in memory of its own."""
        sentences, length = tokens.shape
        self.tokens.zero_()
        self.keep.zero_()
        self.keep[:, 0] = True  # rows without a sentence
        self.tokens[:sentences, :length] = tokens
        self.keep[:sentences, :length] = keep
        self.replay()
        return self.state.beginning(sentences, length, padding(keep))


def start(model: Generator, parts: list[nn.Module], inputs: tuple[Any, ...], store: capturing.Store | None) -> Any:
    """The state before the first token, as `model.start` gives it."""
    with evaluating(parts):
        reading = None if store is None else _reading(model, parts, inputs, store)
        if reading is None:
            return model.start(*inputs)
        model.check(*inputs)  # type: ignore[attr-defined]
        tokens, keep = inputs if len(inputs) == 2 else (inputs[0], torch.ones_like(inputs[0], dtype=torch.bool))
        with capturing.lock:
            return reading.read(tokens, keep)


def _reading(model: Any, parts: list[nn.Module], inputs: tuple[Any, ...], store: capturing.Store) -> Reading | None:
    """A captured reading for these inputs, if there is one, or if it is time for it."""
    tokens = inputs[0]
    masks = all(isinstance(each, Tensor) and each.shape == tokens.shape for each in inputs[1:])
    if tokens.dim() != 2 or tokens.is_floating_point() or len(inputs) > 2 or not masks or not tokens.numel():
        return None
    if not hasattr(model, "check"):
        return None
    sizes = capturing.bucket_size(len(tokens)), max(32, capturing.power_of_two(tokens.shape[1]))
    with capturing.lock:
        found = store.readings.get(sizes)
        if found is None:
            store.readings[sizes] = 1  # it was read once
        elif found == 1:
            found = store.readings[sizes] = _capture(model, parts, tokens, sizes) or False
        return found if isinstance(found, Reading) else None


def _capture(model: Any, parts: list[nn.Module], tokens: Tensor, sizes: tuple[int, int]) -> Reading | None:
    """Capture the reading of sources of a size; None if that is not possible."""
    source = torch.zeros(sizes, dtype=torch.long, device=tokens.device)
    keep = torch.ones(sizes, dtype=torch.bool, device=tokens.device)
    states: list[Any] = []
    reading: Reading | None = None

    def read() -> None:
        states[:] = [model.start(source, keep)]
        if reading is not None:
            reading.state = states[0]

    try:
        if not reserve(parts, sizes[1]):
            return None
        read()
        if not fixable(states[0]) or states[0].slots or states[0].first is not None:
            return None
        reading = Reading(source, keep, states[0], read)
        if tokens.is_cuda:
            reading.replay = capturing.graph_of(read, torch.cuda.graph_pool_handle())
    except RuntimeError:
        return None
    return reading
