"""The cache: what a decoder has read so far, so that each step computes only what is new.

A sentence that is decoded with k beams is a tree. Its tokens stand in *slots*, k new ones a step, and stay where they
were written; which of them a beam descends from is a row of a mask. Choosing beams therefore moves no keys and no
values, only that mask, and all beams of a sentence share its slots and its source.

B sentences, k beams, T new tokens, N slots, S source length, G key-value heads, K head width
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from glassformer.parts.masks import Mask
from glassformer.parts.observing import Watcher

if TYPE_CHECKING:
    from glassformer.parts.fixed_cache import FixedState

FEW = 32  # slots, of which none is given up


class KeyValues(NamedTuple):
    """Keys and values that attention has already projected, (B, G, S, K) each."""

    keys: Tensor
    values: Tensor

    def select(self, sentences: Tensor) -> KeyValues:
        """Those of some sentences."""
        return KeyValues(self.keys.index_select(0, sentences), self.values.index_select(0, sentences))


class Cache:
    """Keys, values and positions of one attention, in memory that is set aside ahead and doubled when full."""

    def __init__(self, room: int = 64) -> None:
        self.room, self.length = room, 0
        self._keys: Tensor | None = None
        self._values: Tensor | None = None
        self._positions: Tensor | None = None

    def append(self, keys: Tensor, values: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Write new keys and values (B, G, T, K) at positions (B or 1, T or 1); give back all so far."""
        first, self.length = self.length, self.length + keys.shape[2]
        self._keys = self._write(self._keys, keys, first, dim=2)
        self._values = self._write(self._values, values, first, dim=2)
        self._positions = self._write(self._positions, positions.expand(len(keys), keys.shape[2]), first, dim=1)
        return self._keys[:, :, : self.length], self._values[:, :, : self.length], self._positions[:, : self.length]

    def held(self) -> tuple[Tensor, Tensor, Tensor] | None:
        """All keys, values and positions so far, if there are any."""
        if self._keys is None or self._values is None or self._positions is None:
            return None
        return self._keys[:, :, : self.length], self._values[:, :, : self.length], self._positions[:, : self.length]

    def _write(self, store: Tensor | None, new: Tensor, first: int, dim: int) -> Tensor:
        """The store with `new` written at slot `first`, moved to a roomier one if need be."""
        if store is None or store.shape[dim] < self.length:
            shape = list(new.shape)
            shape[dim] = max(self.room, 2 * self.length)
            roomier = new.new_empty(shape)
            if store is not None:
                roomier.narrow(dim, 0, first).copy_(store.narrow(dim, 0, first))
            store = roomier
        store.narrow(dim, first, new.shape[dim]).copy_(new)
        return store

    def take(self, slots: Tensor) -> None:
        """Keep only some slots of each sentence, (B, N)."""
        self.length = slots.shape[1]
        if self._keys is not None and self._values is not None and self._positions is not None:
            _, heads, _, width = self._keys.shape
            each = slots[:, None, :, None].expand(-1, heads, -1, width)  # (B, G, N, K)
            for store in (self._keys, self._values):
                store[:, :, : self.length] = store.gather(2, each)
            self._positions[:, : self.length] = self._positions.gather(1, slots)

    def select(self, sentences: Tensor) -> None:
        """Keep only some sentences."""
        if self._keys is not None and self._values is not None and self._positions is not None:
            self._keys = self._keys.index_select(0, sentences)
            self._values = self._values.index_select(0, sentences)
            self._positions = self._positions.index_select(0, sentences)


class DecodingState(Protocol):
    """What any decoder remembers between steps."""

    first: Tensor | None  # (B, 1): what the first step is to read, where a prompt was read before
    watcher: Watcher | None  # who follows the decoding, if anybody

    def select(self, beams: Tensor, sentences: Tensor | None = None) -> None:
        """Go on with some beams (B', k') of some sentences (B'); None: of all of them.

        `beams` says which of its sentence's present beams each beam to come continues.
        """


@dataclass
class DecoderState(DecodingState):
    """Everything a decoder needs to go on. A step uses the state up: go on with the one it gives back."""

    caches: list[Cache]  # of the self-attentions, one a block
    memory: list[KeyValues | None]  # the source for the cross-attentions, projected once, one a block
    memory_mask: Mask | None = None
    position: int | Tensor = 0  # where the next token stands, in all sentences alike or in each, (B, 1)
    first: Tensor | None = None
    slots: int = 0
    prompt: int = 0  # the first of them, which are kept
    kept: int = 0  # slots after they were last pruned
    ancestors: Tensor | None = None  # (B, k, N): the slots each beam descends from; None: a single line, so all
    watcher: Watcher | None = None

    @property
    def sample(self) -> Tensor | None:
        """A tensor of this state that has a row for each sentence, if there is one yet."""
        held = (cache.held() for cache in self.caches)
        tensors = (self.first, *(each and each.keys for each in self.memory), *(each and each[0] for each in held))
        return next((each for each in tensors if each is not None), None)

    @property
    def fixable(self) -> bool:
        """Whether it can be held in memory of fixed size: see `fixed`."""
        if self.watcher is not None or self.sample is None:
            return False
        mask = self.memory_mask
        if mask is None:
            return True
        return not mask.causal and not mask.window and mask.allowed is not None and mask.allowed.shape[1:3] == (1, 1)

    @property
    def source(self) -> int:
        """How long the source is, with padding; 0: there is none."""
        return max((each.keys.shape[2] for each in self.memory if each is not None), default=0)

    @property
    def furthest(self) -> int:
        """The highest position at which a next token stands."""
        return int(self.position.max()) if isinstance(self.position, Tensor) else self.position

    def fixed(self, model: nn.Module, sentences: int, beams: int, room: int, source: int) -> FixedState:
        """Memory of fixed size for states like this one of a model: so many sentences, beams, slots, source tokens."""
        from glassformer.parts.fixed_cache import FixedState  # which builds upon this module

        dtype = next((each.dtype for each in model.parameters() if each.is_floating_point()), torch.float32)
        return FixedState(self, sentences, beams, room, source, dtype)

    def beginning(self, sentences: int, length: int, mask: Mask) -> DecoderState:
        """A copy, in memory of its own, of the state before the first step: of so many sentences, and of their mask."""
        memory = [each and KeyValues(*(x[:sentences, :, :length].clone() for x in each)) for each in self.memory]
        return DecoderState([Cache() for _ in self.caches], memory, mask)

    def grow(self, tokens: Tensor) -> Mask:
        """Set aside a slot for each beam's new token, (B, k), and say which slots it may attend to."""
        (sentences, beams), device = tokens.shape, tokens.device
        before = self.ancestors
        if before is None and beams > 1:  # the line becomes a tree: so far, all beams have one past
            before = torch.ones(sentences, beams, self.slots, dtype=torch.bool, device=device)
        self.slots += beams
        self.position = self.position + 1
        if before is None:
            return Mask()
        itself = torch.eye(beams, dtype=torch.bool, device=device).expand(sentences, -1, -1)
        self.ancestors = torch.cat((before, itself), dim=2)  # (B, k, N)
        return Mask(allowed=self.ancestors[:, None])  # (B, 1, k, N)

    def select(self, beams: Tensor, sentences: Tensor | None = None) -> None:
        if self.watcher is not None:
            self.watcher.select(beams, sentences)
        if sentences is not None:
            for cache in self.caches:
                cache.select(sentences)
            self.memory = [source and source.select(sentences) for source in self.memory]
            self.memory_mask = self.memory_mask and self.memory_mask.select(sentences)
            self.ancestors = None if self.ancestors is None else self.ancestors[sentences]
            self.position = self.position[sentences] if isinstance(self.position, Tensor) else self.position
        if self.ancestors is not None:
            self.ancestors = self.ancestors.gather(1, beams[:, :, None].expand(-1, -1, self.slots))
            if self.slots >= 2 * max(self.kept, FEW):
                self._prune(self.ancestors)

    def _prune(self, ancestors: Tensor) -> None:
        """Give up the slots that no beam descends from."""
        live = ancestors.any(dim=1)  # (B, N)
        live[:, : self.prompt] = True
        most = int(live.sum(dim=1).max())
        self.kept = most
        if most < self.slots:
            slots = live.byte().argsort(dim=1, descending=True, stable=True)[:, :most]  # (B, N'): in their order
            for cache in self.caches:
                cache.take(slots)
            self.ancestors = ancestors.gather(2, slots[:, None].expand(-1, ancestors.shape[1], -1))
            self.slots = most
            if self.watcher is not None:
                self.watcher.prune(slots)
