"""Recurrent stacks: an encoder that reads a text word by word, a decoder that writes one so.

They take the place of the Transformer's stacks, in the same models and with the same calls.

B batch, T target length, S source length, D model width, L layers, k beams, N documents or tokens, M their length
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from glassformer.errors import ConfigurationError, InputError
from glassformer.parts.alignment import Alignment, Source
from glassformer.parts.blocks import embed, stack_points
from glassformer.parts.cache import DecodingState
from glassformer.parts.checks import check_positive
from glassformer.parts.dropout import Dropout
from glassformer.parts.embeddings import Embedding
from glassformer.parts.masks import Mask
from glassformer.parts.observing import Axes, Observable, Watcher
from glassformer.parts.recurrent import Recurrent, State
from glassformer.parts.values import ValueEmbedding


class Reading(NamedTuple):
    """What an encoder has made of texts: a vector for each word (B, S, D), and its final states, (L, B, D) each.

    Where it is bidirectional, the final state is that of both directions, side by side.
    """

    vectors: Tensor
    state: State


def everything(reading: Reading) -> Reading:
    """All of it: what a decoder begins with, and may attend to."""
    return reading


def each_word(reading: Reading) -> Tensor:
    """A vector for each word, (B, S, D): for an answer at every position."""
    return reading.vectors


def the_end(reading: Reading) -> Tensor:
    """The last layer's state when all is read, (B, D): for one answer."""
    return reading.state[0][-1]


class RecurrentEncoder(Observable):
    """Embedding, recurrent layers, dropout; `give` says what of their reading is asked for."""

    embedding: Any  # of tokens, of values

    def __init__(
        self,
        embedding: Embedding | ValueEmbedding,
        layers: Recurrent,
        dropout: float = 0.0,
        give: Callable[[Reading], Any] = everything,
    ) -> None:
        super().__init__()
        self.embedding, self.layers, self.dropout, self.give = embedding, layers, Dropout(dropout), give

    def forward(self, tokens: Tensor, mask: Mask | None = None) -> Any:
        """Tokens (B, S) read in their order, those only that the mask says are real."""
        real = None if mask is None or mask.real is None else mask.real.expand(tokens.shape[:2])
        y, state = self.layers(embed(self, tokens), real)
        ways = self.layers.directions
        joined = tuple(each.unflatten(0, (-1, ways)).transpose(1, 2).flatten(2) for each in state)  # (L, B, D)
        return self.give(Reading(self.seen("output", self.dropout(y)), joined))

    def points(self) -> dict[str, Axes]:
        """What is embedded, what the first layer reads, and what the last one gives."""
        return stack_points(self)


@dataclass
class RecurrentState(DecodingState):
    """Everything a recurrent decoder needs to go on: its layers' states for each beam, and the source if it looks."""

    states: State  # (L, B, k, D) each
    source: Source | None = None
    first: Tensor | None = None
    position: int | Tensor = 0  # where the next token stands, in all sentences alike or in each, (B, 1)
    watcher: Watcher | None = None

    def select(self, beams: Tensor, sentences: Tensor | None = None) -> None:
        if self.watcher is not None:
            self.watcher.select(beams, sentences)
        if sentences is not None:
            self.states = tuple(each[:, sentences] for each in self.states)
            self.source = self.source and self.source.select(sentences)
            self.position = self.position[sentences] if isinstance(self.position, Tensor) else self.position
        self.states = tuple(
            each.gather(2, beams[None, :, :, None].expand(len(each), -1, -1, each.shape[-1])) for each in self.states
        )


class RecurrentDecoder(Observable):
    """Embedding, recurrent layers, attention to the source where there is one, dropout.

    It begins with the encoder's last states. Without `attention` these are all that it ever knows of the source. In
    training, gradients go back `truncate` steps at most: longer texts are read in stretches of so many words, each of
    which takes over the state of the one before but not its past.
    """

    def __init__(
        self,
        embedding: Embedding,
        layers: Recurrent,
        attention: Alignment | None = None,
        dropout: float = 0.0,
        truncate: int | None = None,
    ) -> None:
        super().__init__()
        check_positive(truncate=1 if truncate is None else truncate)
        if layers.directions > 1:
            raise ConfigurationError("a decoder cannot be bidirectional: it would see the tokens it has to predict")
        self.embedding, self.layers, self.attention = embedding, layers, attention
        self.dropout, self.truncate = Dropout(dropout), truncate

    def forward(
        self,
        tokens: Tensor,
        memory: Reading | None = None,
        memory_mask: Mask | None = None,
        mask: Mask | None = None,
        documents: Tensor | None = None,
    ) -> Tensor:
        """All tokens (B, T) at once, none of which sees a later one: (B, T, D).

        `documents` (B, T) says which document each is from: with each the state begins anew. The `mask` of padding
        changes nothing here, since padding comes last.
        """
        x = embed(self, tokens)
        y = self._apart(x, documents) if documents is not None else self._read(x, memory and memory.state)
        return self._seen(y, self._source(memory, memory_mask))

    def start(self, memory: Reading, memory_mask: Mask | None = None) -> RecurrentState:
        """The state before the first token; the source's keys are computed once, by this call."""
        watcher, states = self._watcher(), tuple(each[:, :, None] for each in memory.state)
        return RecurrentState(states, self._source(memory, memory_mask), watcher=watcher)

    def points(self) -> dict[str, Axes]:
        """What is embedded, what the first layer reads, and what is given in the end."""
        return stack_points(self)

    def _watcher(self) -> Watcher | None:
        return None if self.observe is None else self.observe.start()

    def read(self, tokens: Tensor, keep: Tensor | None = None) -> RecurrentState:
        """The state after prompts (B, T), read at once; their last real tokens are left to the first step.

        `keep` (B, T) is True where a token is real; padding comes last.
        """
        lengths = torch.full_like(tokens[:, :1], tokens.shape[1]) if keep is None else keep.sum(dim=1, keepdim=True)
        first, before, watcher = tokens.gather(1, lengths - 1), tokens[:, :-1], self._watcher()  # (B, 1), (B, N)
        if before.shape[1]:
            real = torch.arange(before.shape[1], device=tokens.device) < (lengths - 1).clamp(min=1)  # (B, N)
            y, states = self.layers(embed(self, before, watcher=watcher), real)
            if self.observe is not None:
                self.observe("output", self.dropout(y))  # which only observers need
            begun = lengths[None] > 1  # (1, B, 1); of a single token nothing is read yet
            states = tuple(each * begun for each in states)
        else:
            states = self.layers.begin(self.embedding(tokens))
        return RecurrentState(tuple(each[:, :, None] for each in states), None, first, lengths - 1, watcher)

    def step(self, state: RecurrentState, tokens: Tensor) -> tuple[Tensor, RecurrentState]:
        """One more token for each beam, (B, k), to its vector (B, k, D)."""
        x = embed(self, tokens, state.position, state.watcher).flatten(0, 1)[:, None]  # (B * k, 1, D)
        y, states = self.layers(x, None, tuple(each.flatten(1, 2).contiguous() for each in state.states))
        new = tuple(each.unflatten(1, tokens.shape) for each in states)  # (L, B, k, D)
        going_on = RecurrentState(new, state.source, None, state.position + 1, state.watcher)
        return self._seen(y.view(*tokens.shape, -1), state.source), going_on

    def _source(self, memory: Reading | None, mask: Mask | None) -> Source | None:
        """The source to attend to, where this decoder does."""
        if self.attention is None:
            return None
        if memory is None:
            raise InputError("this decoder attends to a source: it needs the source's memory")
        return self.attention.project(memory.vectors, mask)

    def _seen(self, y: Tensor, source: Source | None) -> Tensor:
        """What the layers say (B, T, D), with what they look at."""
        if self.attention is not None and source is not None:
            y = self.attention(y, source)
        return self.seen("output", self.dropout(y))

    def _read(self, x: Tensor, state: State | None, real: Tensor | None = None) -> Tensor:
        """Vectors (B, T, D) after each word; in training a stretch at a time, if gradients are truncated."""
        if state is not None:
            state = tuple(each.contiguous() for each in state)
        if self.truncate is None or not self.training:
            return self.layers(x, real, state)[0]  # type: ignore[no-any-return]
        given = []
        for stretch in torch.split(x, self.truncate, dim=1):
            y, state = self.layers(stretch, None, state)
            state = tuple(each.detach() for each in state)
            given.append(y)
        return torch.cat(given, dim=1)  # (B, T, D)

    def _apart(self, x: Tensor, documents: Tensor) -> Tensor:
        """The same for rows of several documents, each of which is read as if it stood alone."""
        begins = torch.ones_like(documents, dtype=torch.bool)
        begins[:, 1:] = documents[:, 1:] != documents[:, :-1]
        number = begins.flatten().cumsum(0) - 1  # (B * T), counted through the batch
        counts = number.bincount()  # (N)
        position = torch.arange(len(number), device=x.device) - (counts.cumsum(0) - counts)[number]  # (B * T)
        table = x.new_zeros(len(counts), int(counts.max()), x.shape[-1])  # (N, M, D)
        table[number, position] = x.flatten(0, 1)
        real = torch.arange(table.shape[1], device=x.device) < counts[:, None]  # (N, M)
        return self._read(table, None, real)[number, position].view(*x.shape[:2], -1)  # (B, T, D)
