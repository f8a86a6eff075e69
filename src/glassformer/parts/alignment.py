"""Alignment: which states of the source matter to the next word of the target.

The attention of recurrent decoders, older than the Transformer's, in the notes' steps:

    score            e_ts = score(h_t, s)           how well source state s suits decoder state h_t
    softmax          a_ts = softmax_s(e_ts)         the weights
    context vector   c_t = Σ_s a_ts s               the states, weighed
    concatenate      y_t = tanh(W [h_t; c_t])       from which the next word is predicted

B batch, T target length, S source length, D source width, W decoder width, H heads
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, NamedTuple

import torch
from torch import Tensor, nn

from glassformer.parts.checks import check_positive, check_width
from glassformer.parts.linear import Linear
from glassformer.parts.masks import Mask
from glassformer.parts.named import Named
from glassformer.parts.observing import Axes, Observable, axes


class AdditiveScore(nn.Module):
    """score(h, s) = vᵀ tanh(W_h h + W_s s): a small network with one hidden layer (Bahdanau and others, 2014)."""

    def __init__(self, width: int, memory_width: int) -> None:
        super().__init__()
        check_positive(width=width, memory_width=memory_width)
        self.query, self.key = Linear(width, width, bias=False), Linear(memory_width, width)
        self.score = Linear(width, 1, bias=False)

    def forward(self, x: Tensor, keys: Tensor) -> Tensor:
        """Scores (B, T, S) of what `key` made of the source, (B, S, W), for decoder states (B, T, W)."""
        both = self.query(x)[:, :, None] + keys[:, None]  # (B, T, S, W)
        return self.score(torch.tanh(both))[..., 0]  # type: ignore[no-any-return]  # (B, T, S)


class MultiplicativeScore(nn.Module):
    """score(h, s) = hᵀ W s: a product, with a matrix that learns what to compare (Luong and others, 2015)."""

    def __init__(self, width: int, memory_width: int) -> None:
        super().__init__()
        check_positive(width=width, memory_width=memory_width)
        self.key = Linear(memory_width, width, bias=False)

    def forward(self, x: Tensor, keys: Tensor) -> Tensor:
        """Scores (B, T, S) of what `key` made of the source, (B, S, W), for decoder states (B, T, W)."""
        return x @ keys.transpose(1, 2)


Score = Callable[[int, int], AdditiveScore | MultiplicativeScore]  # the widths of decoder and source to a part
ScoreKind = Annotated[Score | None, Named(none=None, additive=AdditiveScore, multiplicative=MultiplicativeScore)]


class Source(NamedTuple):
    """A source to attend to: its states (B, S, D), what the score makes of them (B, S, W), which are real (B or 1, S).

    Computed once, attended to at every step.
    """

    states: Tensor
    keys: Tensor
    real: Tensor | None

    def select(self, sentences: Tensor) -> Source:
        """That of some sentences."""
        return Source(*(None if each is None else each[sentences] for each in self))  # type: ignore[arg-type]


class Alignment(Observable):
    """Attention of a recurrent decoder, by any `score`."""

    def __init__(self, width: int, memory_width: int, score: Score) -> None:
        super().__init__()
        self.score = score(width, memory_width)
        self.width, self.memory_width = width, memory_width
        self.output = Linear(width + memory_width, width)

    def points(self) -> dict[str, Axes]:
        """As of attention with one head; `heads` is the context vector. Scores are before the mask."""
        table = axes(head=1, token=None, key=None)
        return {
            "keys": axes(key=None, feature=self.width),
            "scores": table,
            "weights": table,
            "heads": axes(head=1, token=None, feature=self.memory_width),
            "output": axes(token=None, feature=self.width),
        }

    def project(self, states: Tensor, mask: Mask | None = None) -> Source:
        """A source's states (B, S, D), ready to be attended to wherever the mask allows it."""
        check_width(states, self.memory_width, "the memory")
        real = None if mask is None else mask.real
        keys = self.seen("keys", self.score.key(states))
        return Source(states, keys, None if real is None else real.expand(states.shape[:2]))

    def forward(self, x: Tensor, source: Source) -> Tensor:
        """Decoder states (B, T, W) with what they take in from the source: (B, T, W)."""
        check_width(x, self.width, "the input")
        scores = self._seen_in_its_head("scores", self.score(x, source.keys))  # (B, T, S)
        if source.real is not None:
            scores = scores.masked_fill(~source.real[:, None], -torch.inf)
        weights = self._seen_in_its_head("weights", scores.softmax(dim=-1))
        context = self._seen_in_its_head("heads", weights @ source.states)  # (B, T, D)
        return self.seen("output", torch.tanh(self.output(torch.cat((x, context), dim=-1))))  # (B, T, W)

    def _seen_in_its_head(self, name: str, x: Tensor) -> Tensor:
        """What goes on of (B, T, S), which observers see as that of the only head, (B, 1, T, S)."""
        return x if self.observe is None else self.observe(name, x[:, None])[:, 0]
