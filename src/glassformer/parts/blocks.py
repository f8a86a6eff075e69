"""Blocks and stacks: attention exchanges information between tokens, feed-forward transforms each; repeat.

A block is built of parts that are already wrapped in their residual and norm (`PreNorm` or `PostNorm`), so that the
block itself has nothing to decide.

B batch, T target length, S source length, N slots, D model width, k beams
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.errors import ConfigurationError, InputError
from glassformer.parts.attention import MultiHeadAttention
from glassformer.parts.cache import Cache, DecoderState, KeyValues
from glassformer.parts.embeddings import Embedding
from glassformer.parts.masks import Mask, causal, packed, padding
from glassformer.parts.masks import documents as within
from glassformer.parts.observing import Axes, Observable, Watcher, axes
from glassformer.parts.packing import Packed
from glassformer.parts.patches import FilmEmbedding, PatchEmbedding
from glassformer.parts.positions import NoPositions, Position, reserve, restarting
from glassformer.parts.values import ValueEmbedding

AnyEmbedding = Embedding | PatchEmbedding | FilmEmbedding | ValueEmbedding


def embed(
    stack: Any, tokens: Tensor, position: Position = None, watcher: Watcher | None = None, **details: Any
) -> Tensor:
    """What a stack begins with: its embedding of tokens (B, T), which its observer is told of, (B, T, D)."""
    observe = stack.observe
    if observe is None:
        return stack.embedding(tokens, position, **details)  # type: ignore[no-any-return]
    observe.begin(tokens, position, watcher)
    x = stack.embedding(observe("tokens", tokens), position, observe=observe, **details)
    return observe("0.before", x)  # type: ignore[no-any-return]


def stack_points(stack: Any) -> dict[str, Axes]:
    """The points of a stack that are not those of its parts: what is embedded, and what is read and given."""
    embedding, vectors = stack.embedding, axes(token=None, feature=None)
    names = (
        "embedding",
        *(() if isinstance(embedding.positions, NoPositions) else ("positions",)),
        "0.before",
        "output",
    )
    return {**embedding.reads(), **dict.fromkeys(names, vectors)}


class EncoderBlock(Observable):
    """Self-attention, then feed-forward."""

    def __init__(self, attention: nn.Module, feed_forward: nn.Module) -> None:
        super().__init__()
        self.attention, self.feed_forward = attention, feed_forward

    def points(self) -> dict[str, Axes]:
        """The residual stream after each part."""
        return dict.fromkeys(("self.after", "after"), axes(token=None, feature=None))

    def forward(self, x: Tensor, mask: Mask | None = None, position: Position = None) -> Tensor:
        """Tokens (B, S, D) that have seen each other."""
        x = self.seen("self.after", self.attention(x, mask=mask, position=position))
        return self.seen("after", self.feed_forward(x))


class DecoderBlock(Observable):
    """Masked self-attention, then cross-attention to the source where there is one, then feed-forward."""

    def __init__(self, self_attention: nn.Module, cross_attention: nn.Module | None, feed_forward: nn.Module) -> None:
        super().__init__()
        self.self_attention, self.cross_attention, self.feed_forward = self_attention, cross_attention, feed_forward

    def points(self) -> dict[str, Axes]:
        """The residual stream after each part."""
        parts = ("self.after", "after") if self.cross_attention is None else ("self.after", "cross.after", "after")
        return dict.fromkeys(parts, axes(token=None, feature=None))

    def forward(
        self,
        x: Tensor,
        memory: Tensor | KeyValues | None = None,
        mask: Mask | None = None,
        memory_mask: Mask | None = None,
        cache: Cache | None = None,
        position: Position = None,
    ) -> Tensor:
        """Tokens (B, T, D) that have seen their past and the source."""
        x = self.seen("self.after", self.self_attention(x, mask=mask, cache=cache, position=position))
        if self.cross_attention is not None:
            if memory is None:
                raise InputError("this decoder attends to a source: it needs the source's memory")
            x = self.cross_attention(x, memory=memory, mask=memory_mask, position=position)
            x = self.seen("cross.after", x)
        return self.seen("after", self.feed_forward(x))

    def project(self, memory: Tensor) -> KeyValues | None:
        """The source's keys and values for this block's cross-attention, if it has one."""
        if self.cross_attention is None:
            return None
        for part in self.cross_attention.modules():
            if isinstance(part, MultiHeadAttention):
                return part.project(memory)
        raise ConfigurationError("this block's cross-attention holds no MultiHeadAttention")


class Encoder(Observable):
    """Embedding, blocks, final norm: reads a whole source at once, both ways."""

    embedding: Any  # of tokens, of an image's or a film's patches, of values

    def __init__(self, embedding: AnyEmbedding, blocks: Iterable[EncoderBlock], norm: nn.Module | None = None) -> None:
        super().__init__()
        self.embedding = embedding
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.Identity() if norm is None else norm

    def forward(self, tokens: Tensor, mask: Mask | None = None, position: Position = None, **details: Any) -> Tensor:
        """Tokens (B, S), or what else the embedding reads, to vectors in context (B, S, D).

        `details` are for the embedding: the segments of BERT.
        """
        x = embed(self, tokens, position, **details)
        for block in self.blocks:
            x = block(x, mask=mask, position=position)
        return self.seen("output", self.norm(x))

    def points(self) -> dict[str, Axes]:
        """What is embedded, what enters the first block, and what leaves the final norm."""
        return stack_points(self)


class Decoder(Observable):
    """Embedding, blocks, final norm: reads its own words so far, and the source where there is one.

    A `mask` in words (`window(512)`) narrows down what it sees of them, all at once and step by step alike.
    """

    embedding: Any  # of tokens, or of values

    def __init__(
        self,
        embedding: Embedding | ValueEmbedding,
        blocks: Iterable[DecoderBlock],
        norm: nn.Module | None = None,
        mask: Mask | None = None,
    ) -> None:
        super().__init__()
        self.mask = Mask() if mask is None else mask
        if self.mask.allowed is not None:
            raise ConfigurationError("a decoder's own mask must serve any length: pass a window, not a table")
        self.embedding = embedding
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.Identity() if norm is None else norm

    def forward(
        self,
        tokens: Tensor,
        memory: Tensor | None = None,
        memory_mask: Mask | None = None,
        mask: Mask | None = None,
        documents: Tensor | Packed | None = None,
    ) -> Tensor:
        """All tokens (B, T) at once, none of which sees a later one: (B, T, D).

        A `mask` narrows that down further, for this pass only (padding). `documents` say which document each token is
        from, by numbers (B, T) or by where each begins: each is read as if it stood alone.
        """
        seen = causal() & self.mask
        mask = seen if mask is None else mask & seen
        position: Position = None
        if isinstance(documents, Packed):
            mask, position = mask & packed(documents, documents), documents.positions(tokens.shape[1])
        elif documents is not None:
            mask = mask & within(documents)
            # Distances inside a document are the same wherever it begins: only positions in the embedding start anew.
            order = self.embedding.positions
            position = None if isinstance(order, NoPositions) else restarting(documents)
            reserve((order,), tokens.shape[1])  # since compiled code does not look at positions
        x = embed(self, tokens, position)
        for block in self.blocks:
            x = block(x, memory=memory, mask=mask, memory_mask=memory_mask, position=position)
        return self.seen("output", self.norm(x))

    def points(self) -> dict[str, Axes]:
        """What is embedded, what enters the first block, and what leaves the final norm."""
        return stack_points(self)

    def start(self, memory: Tensor | None = None, memory_mask: Mask | None = None) -> DecoderState:
        """The state before the first token; the source's keys and values are computed once, by this call."""
        watcher = None if self.observe is None else self.observe.start()
        sources = [None if memory is None else block.project(memory) for block in self.blocks]  # type: ignore[operator]
        return DecoderState([Cache() for _ in self.blocks], sources, memory_mask, watcher=watcher)

    def read(self, tokens: Tensor, keep: Tensor | None = None) -> DecoderState:
        """The state after prompts (B, T), read at once; their last real tokens are left to the first step.

        `keep` (B, T) is True where a token is real; padding comes last.
        """
        state = self.start()
        lengths = None if keep is None or bool(keep.all()) else keep.sum(dim=1, keepdim=True)  # (B, 1)
        state.first = tokens[:, -1:] if lengths is None else tokens.gather(1, lengths - 1)  # (B, 1)
        before = tokens[:, :-1]  # (B, N)
        if not before.shape[1]:
            return state
        mask = causal() & self.mask
        if lengths is not None:
            real = torch.arange(before.shape[1], device=tokens.device) < lengths - 1  # (B, N)
            mask, state.ancestors = mask & padding(real), real[:, None]  # (B, 1, N)
        x = embed(self, before, watcher=state.watcher)
        for block, cache in zip(self.blocks, state.caches, strict=True):
            x = block(x, mask=mask, cache=cache)
        if self.observe is not None:
            self.observe("output", self.norm(x))  # which only observers need: the first step scores the last token
        state.slots = state.prompt = before.shape[1]
        state.position = state.slots if lengths is None else lengths - 1
        return state

    def step(self, state: DecoderState, tokens: Tensor) -> tuple[Tensor, DecoderState]:
        """One more token for each beam, (B, k), to its vector (B, k, D). For inference: caches are written in place."""
        position = state.position
        mask = state.grow(tokens) & self.mask
        x = embed(self, tokens, position, state.watcher)
        for block, cache, memory in zip(self.blocks, state.caches, state.memory, strict=True):
            x = block(x, memory=memory, mask=mask, memory_mask=state.memory_mask, cache=cache, position=position)
        return self.seen("output", self.norm(x)), state
