"""A decoder's state in memory of fixed size, so that a step is the same work every time: what a CUDA graph needs.

Everything that changes from step to step, the next slot and the position too, is a tensor on the device and is changed
in place. Slots that are not written yet are masked.

B sentences, k beams, N slots, S source length, G key-value heads, K head width
"""

from __future__ import annotations

import torch
from torch import Tensor

from glassformer.errors import InputError
from glassformer.parts.cache import Cache, DecoderState, DecodingState, KeyValues
from glassformer.parts.masks import Mask
from glassformer.parts.observing import Watcher


class Slots:
    """Which slots the new tokens are written to, and where all tokens stand; shared by the caches of all layers."""

    def __init__(self, sentences: int, beams: int, room: int, device: torch.device) -> None:
        self.room = room
        self.offsets = torch.arange(beams, device=device)  # (k)
        self.next = torch.zeros(1, dtype=torch.long, device=device)  # the first free slot
        self.new = self.offsets.clone()  # (k): the slots of the present step
        self.positions = torch.zeros(sentences, room, dtype=torch.long, device=device)  # (B, N)


class FixedCache:
    """Keys and values of one attention, (B, G, N, K) each, for all slots from the beginning."""

    def __init__(self, slots: Slots) -> None:
        self.slots = slots
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    def append(self, keys: Tensor, values: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Write the keys and values (B, G, k, K) of the present step; give back those of all slots."""
        every_key, every_value = self.stores(keys, values)
        every_key.index_copy_(2, self.slots.new, keys)
        every_value.index_copy_(2, self.slots.new, values)
        return every_key, every_value, self.slots.positions

    def stores(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Where keys and values like these are written: zeros at first, since what is masked must still be finite."""
        if self.keys is None or self.values is None:
            sizes = len(self.slots.positions), keys.shape[1], self.slots.room
            self.keys, self.values = (x.new_zeros(*sizes, x.shape[3]) for x in (keys, values))
        return self.keys, self.values

    def load(self, cache: Cache) -> None:
        """Take over what a cache holds."""
        held = cache.held()
        if held is not None:
            for store, new in zip(self.stores(held[0], held[1]), held, strict=False):
                store[: len(new), :, : cache.length].copy_(new)
            self.slots.positions[: len(held[2]), : cache.length].copy_(held[2])


class FixedState(DecodingState):
    """A `DecoderState` in fixed memory. `select` ends a step: it moves on to the next slots and positions."""

    first: Tensor | None = None
    watcher: Watcher | None = None

    def __init__(self, like: DecoderState, sentences: int, beams: int, room: int, source: int, dtype: torch.dtype):
        """For so many sentences, beams, slots and source tokens, and as many layers as another state has."""
        device = _rows_of(like).device
        self.slots = Slots(sentences, beams, room, device)
        self.caches = [FixedCache(self.slots) for _ in like.caches]
        self.position = torch.zeros(sentences, 1, dtype=torch.long, device=device)
        self.ancestors = torch.zeros(sentences, beams, room, dtype=torch.bool, device=device)  # (B, k, N)
        self._levels = torch.tensor([0.0, -torch.inf], dtype=dtype, device=device)
        self._added = torch.zeros(sentences, 1, beams, room, dtype=dtype, device=device)
        self.memory = [_room_for(each, sentences, source) for each in like.memory]
        self._source = torch.ones(sentences, 1, 1, source, dtype=torch.bool, device=device)  # (B, 1, 1, S)
        self._source_filled = torch.full((1,), source, dtype=torch.long, device=device)
        self._source_added = torch.zeros(self._source.shape, dtype=dtype, device=device)

    @property
    def memory_mask(self) -> Mask:
        """Which tokens of the source are real."""
        return Mask(self._source, added=self._source_added, filled=self._source_filled)

    def grow(self, tokens: Tensor) -> Mask:
        """Set aside a slot for each beam's new token, (B, k), and say which slots it may attend to."""
        (sentences, beams), slots = tokens.shape, self.slots
        torch.add(slots.offsets, slots.next, out=slots.new)
        slots.positions.index_copy_(1, slots.new, self.position.expand(sentences, beams))
        self.ancestors.scatter_(2, slots.new[None, :, None].expand(sentences, beams, 1), True)
        self._add(self.ancestors[:, None], self._added)
        return Mask(self.ancestors[:, None], added=self._added, filled=slots.next)  # (B, 1, k, N)

    def select(self, beams: Tensor, sentences: Tensor | None = None) -> None:
        if sentences is not None:
            raise NotImplementedError("sentences stay where they are in fixed memory: thaw it")
        if beams.shape[1] > 1:
            self.ancestors.copy_(self.ancestors.gather(1, beams[:, :, None].expand_as(self.ancestors)))
        self.slots.next.add_(beams.shape[1])
        self.position.add_(1)

    def load(self, state: DecoderState) -> None:
        """Take over another state, of as many sentences or fewer."""
        sentences, used = len(_rows_of(state)), state.slots
        for cache, other in zip(self.caches, state.caches, strict=True):
            cache.load(other)
        self.ancestors.zero_()
        past = self.ancestors[:sentences, :, :used]
        past.fill_(True) if state.ancestors is None else past.copy_(state.ancestors.expand_as(past))
        self.ancestors[sentences:, :, :1] = True  # rows without a sentence attend to something, too
        self.slots.next.fill_(used)
        self.position.zero_()
        self.position[:sentences] = state.position
        self._load_source(state, sentences)

    def _load_source(self, state: DecoderState, sentences: int) -> None:
        for store, given in zip(self.memory, state.memory, strict=True):
            if store is not None and given is not None:
                for mine, other in zip(store, given, strict=True):
                    mine[:sentences, :, : other.shape[2]].copy_(other)
        length = state.source or 1
        real = self._source[:sentences]
        real.zero_()
        allowed = None if state.memory_mask is None else state.memory_mask.allowed
        real[..., :length] = True if allowed is None else allowed
        self._source[sentences:] = True
        self._source_filled.fill_(length)
        self._add(self._source, self._source_added)

    def _add(self, allowed: Tensor, added: Tensor) -> None:
        """Write 0 where a mask allows and -inf elsewhere."""
        torch.where(allowed, self._levels[0], self._levels[1], out=added)

    def thaw(self, sentences: Tensor, used: int, source: int) -> DecoderState:
        """The state of some sentences, after so many slots and with so long a source, to go on with in any memory."""
        caches = []
        for cache in self.caches:
            caches.append(new := Cache())
            if cache.keys is not None and cache.values is not None:
                keys, values = (x[:, :, :used].index_select(0, sentences) for x in (cache.keys, cache.values))
                new.append(keys, values, self.slots.positions[:, :used].index_select(0, sentences))
        memory = [
            each and KeyValues(*(x[:, :, :source].index_select(0, sentences) for x in each)) for each in self.memory
        ]
        return DecoderState(
            caches,
            memory,
            Mask(self._source[..., :source].index_select(0, sentences)),
            self.position.index_select(0, sentences),
            slots=used,
            ancestors=self.ancestors[:, :, :used].index_select(0, sentences),
        )


def fixable(state: object) -> bool:
    """Whether a state can be held in fixed memory; those of recurrent layers cannot."""
    return bool(getattr(state, "fixable", False))


def _rows_of(state: DecoderState) -> Tensor:
    """A tensor with a row for each sentence."""
    rows = state.sample
    if rows is None:
        raise InputError("this state has read nothing yet: it does not say how many sentences there are")
    return rows


def _room_for(memory: KeyValues | None, sentences: int, source: int) -> KeyValues | None:
    if memory is None:
        return None
    return KeyValues(*(x.new_zeros(sentences, x.shape[1], source, x.shape[3]) for x in memory))
