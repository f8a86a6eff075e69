"""Capturing: a whole step of decoding as one CUDA graph, which the GPU repeats without waiting for Python.

A step of a Transformer decoder is some hundred small kernels. Launched one by one from Python they take ten times as
long as they compute; a graph of them is launched at once. It repeats the same work in the same memory, so a state and a
search of fixed size are kept for it (a *bucket*): so many sentences, slots and source tokens. A decoding borrows a
bucket that is large enough, copies its state into it, and moves to a larger one when its slots are full, or to a
smaller one when most of its sentences are done. Buckets are kept with their model, for as long as its weights stay
where they are.

What needs the host at every step is decoded without a graph: recordings and interventions, rules that look back at
what was written, prefixes, choices of the user's own, and models other than Transformers.

B sentences, k beams, N slots, S source length
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from glassformer.decoding.loop import Eager, Job, Rows, Runner, SomeSearch
from glassformer.decoding.protocol import evaluating
from glassformer.parts.checks import reading_nothing
from glassformer.parts.fixed_cache import fixable
from glassformer.parts.lora import LoRALinear
from glassformer.parts.observing import Observable
from glassformer.parts.positions import reserve

SHORTEST = 8  # tokens: for fewer, capturing takes longer than it saves
FIRST_STEPS = 32  # the room of the first bucket; with one beam, twice as much
BUCKETS = 12  # that are kept for a model

lock = threading.RLock()


@dataclass
class Bucket:
    """A captured step, and the memory in which it works."""

    key: tuple[Any, ...]  # what the step depends on, apart from sizes
    sizes: tuple[int, int, int]  # sentences, slots, source tokens
    state: Any  # in fixed memory
    search: SomeSearch
    replay: Callable[[], None]
    vocabulary: int
    kept: tuple[Any, ...]  # tensors that the graph reads


@dataclass
class Store:
    """The buckets of a model that nobody uses at present, the latest last."""

    places: tuple[Any, ...]  # where the model's weights are, and which adapters it uses: graphs read them there
    weights: list[Tensor]  # the weights themselves, so that their memory stays as long as a graph may read it
    buckets: list[Bucket] = field(default_factory=list)
    pool: Any = None  # memory for what a step computes, which all graphs share: only one of them is at work at a time
    refused: bool = False  # a capture has failed
    readings: dict[tuple[int, ...], Any] = field(default_factory=dict)  # by sizes; see `starting`

    def take(self, key: tuple[Any, ...], sizes: tuple[int, int, int]) -> Bucket | None:
        """The smallest bucket that is large enough, and not much too large."""
        suited = [
            bucket
            for bucket in self.buckets
            if bucket.key == key
            and all(need <= has for need, has in zip(sizes, bucket.sizes, strict=True))
            and bucket.sizes[0] <= max(4, 2 * sizes[0])
            and bucket.sizes[1] <= max(256, 2 * sizes[1])
        ]
        if not suited:
            return None
        best = min(suited, key=lambda bucket: bucket.sizes)
        self.buckets.remove(best)
        return best

    def put(self, bucket: Bucket) -> None:
        """Give back a bucket."""
        self.buckets.append(bucket)
        del self.buckets[:-BUCKETS]


stores: WeakKeyDictionary[nn.Module, Store] = WeakKeyDictionary()


def supports(device: torch.device) -> bool:
    """Whether steps can be captured on this device."""
    return device.type == "cuda"


def captured(job: Job, state: Any, search: SomeSearch, rows: Rows, length: int) -> Captured | None:
    """A runner of captured steps for sentences that have `length` tokens already; None where it is not possible."""
    remaining, key, store = job.most - length, search.key, job.store
    if store is None or store.refused or key is None or remaining < SHORTEST or not fixable(state):
        return None
    sizes, steps = _sizes(state, search, remaining, length)
    if not reserve(job.parts, state.furthest + min(steps, remaining), most=sizes[1]):  # no position is above its slot
        return None  # learned positions may not suffice: step by step, an output may end in time
    with lock:
        bucket = store.take(key, sizes) or _capture(job, state, search, key, sizes, store)
    if bucket is None:
        return None
    search.check(bucket.vocabulary)
    bucket.state.load(state)
    bucket.search.load(search)
    bucket.search.sentences = search.sentences
    return Captured(job, store, bucket, rows, state)


def store_for(model: Any, parts: list[nn.Module], device: torch.device) -> Store | None:
    """The buckets of a model, none of them if its weights have moved; None: its steps cannot be captured.

    They cannot where something else than the model's own parts is at work: hooks, observers, autocast.
    """
    if not parts or not supports(device) or torch.is_autocast_enabled(device.type):
        return None
    weights: list[Tensor] = []
    using: list[Any] = []
    for part in parts:
        if part._forward_hooks or part._forward_pre_hooks:
            return None
        if isinstance(part, Observable) and part.observe is not None:
            return None
        if isinstance(part, LoRALinear):
            using.append(part.using)
        for tensors in (part._parameters, part._buffers):
            if tensors:
                weights += [each for each in tensors.values() if each is not None]
    places = tuple(each.data_ptr() for each in weights), tuple(using)
    with lock:
        store = stores.get(model)
        if store is None or store.places != places:
            store = stores[model] = Store(places, weights)
        return None if store.refused else store


def _sizes(state: Any, search: SomeSearch, remaining: int, length: int) -> tuple[tuple[int, int, int], int]:
    """How many sentences, slots and source tokens there must be room for; and for how many steps that is."""
    beams = getattr(getattr(search, "rules", None), "width", 1)
    steps = max(length, FIRST_STEPS if beams > 1 else 2 * FIRST_STEPS)
    if 2 * remaining <= 3 * steps:
        steps = remaining
    slots = _rounded(state.slots + beams * steps)
    sizes = bucket_size(len(search.tokens)), slots, max(32, power_of_two(state.source)) if state.source else 1
    return sizes, (slots - state.slots) // beams


def power_of_two(number: int) -> int:
    """The next power of two."""
    return 1 << max(0, number - 1).bit_length()


def bucket_size(number: int) -> int:
    """A number of sentences for which there are buckets: powers of two, and from 64 on what is half between them."""
    power = power_of_two(number)
    return 3 * power // 4 if power > 64 and number <= 3 * power // 4 else power


def _rounded(number: int) -> int:
    """A number of slots for which there are buckets: multiples of 32, and of an eighth of a power of two."""
    step = max(32, power_of_two(number) // 8)
    return -(-number // step) * step


def _capture(
    job: Job, state: Any, search: SomeSearch, key: tuple[Any, ...], sizes: tuple[int, int, int], store: Store
) -> Bucket | None:
    """Capture a step in memory of these sizes; None, and never again, if this model's steps cannot be captured."""
    sentences, slots, source = sizes
    device = search.tokens.device
    model: Any = job.model
    vocabulary = 0
    try:
        own = search.empty(sentences, slots // max(1, search.empty(1, 1).tokens.shape[1]))
        fixed = state.fixed(model, sentences, own.tokens.shape[1], slots, source)
        kept = copy(own)
        alone = torch.zeros(sentences, 1, dtype=torch.long, device=device)

        def step() -> None:
            nonlocal vocabulary
            logits, _ = model.step(fixed, own.tokens)
            vocabulary = logits.shape[-1]
            after, beams = own.advance(logits)
            own.load(after)
            fixed.select(alone if beams is None else beams)

        if store.pool is None and device.type == "cuda":
            store.pool = torch.cuda.graph_pool_handle()
        with evaluating(job.parts):
            step()  # what it needs is allocated
            replay = graph_of(step, store.pool) if device.type == "cuda" else step
    except (RuntimeError, NotImplementedError, TypeError):  # torch.OutOfMemoryError is a RuntimeError
        store.refused = True
        store.buckets.clear()
        return None
    return Bucket(key, sizes, fixed, own, replay, vocabulary, (kept, alone))


def graph_of(step: Callable[[], None], pool: Any) -> Callable[[], None]:
    """Work that was done once as a graph, which takes memory from a pool."""
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream), reading_nothing():
        with _never_waiting():  # a capture that fails would leave PyTorch's random numbers unusable: so it is not begun
            step()  # libraries set up their workspaces for this stream, too
        torch.cuda.synchronize()
        graph.capture_begin(pool=pool, capture_error_mode="thread_local")
        try:
            step()
        finally:
            graph.capture_end()
    torch.cuda.current_stream().wait_stream(stream)
    return graph.replay


@contextmanager
def _never_waiting() -> Iterator[None]:
    """Make whatever waits for the device an error."""
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Synchronization debug mode")  # PyTorch says that it may miss some
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


class Captured(Runner):
    """Repeats a captured step."""

    def __init__(self, job: Job, store: Store, bucket: Bucket, rows: Rows, state: Any) -> None:
        self.store = store
        self.job, self.bucket, self.rows, self.search = job, bucket, rows, bucket.search
        self.used, self.beams = state.slots, bucket.search.tokens.shape[1]
        self.source = state.source or 1

    def ahead(self, length: int) -> int:
        return min(self.job.every, self._free)

    @property
    def _free(self) -> int:
        """For how many more steps there are slots."""
        return int((self.bucket.sizes[1] - self.used) // self.beams)

    def step(self) -> None:
        self.bucket.replay()
        self.used += self.beams

    def keep(self, rows: Rows, length: int) -> Runner:
        """Stay as long as there are slots, and as a smaller bucket would not be much faster."""
        self.rows = rows
        few = self.bucket.sizes[0] >= 256 and 4 * bucket_size(len(rows)) <= self.bucket.sizes[0]
        if self._free and not few:
            return self
        chosen = torch.tensor([row for row, _ in rows], device=self.search.tokens.device)
        state = self.bucket.state.thaw(chosen, self.used, self.source)
        sentences = [sentence for _, sentence in rows]
        search = self.search.keep(chosen, sentences)
        self.close(sound=True)
        again = [(row, sentence) for row, sentence in enumerate(sentences)]
        return captured(self.job, state, search, again, length) or Eager(self.job, state, search, again)

    def close(self, sound: bool) -> None:
        """Give the bucket back; not after an error, since memory with numbers that are not finite spoils the next."""
        if sound:
            with lock:
                self.store.put(self.bucket)
