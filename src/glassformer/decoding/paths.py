"""Paths: the partial outputs of a beam search with all their tokens, for rules that look back and for watchers.

B sentences, k beams, C candidates, t length so far
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class Paths:
    """Partial outputs, best first: B sentences with k each."""

    scores: Tensor  # (B, k): the sum of log-probabilities; -inf: no path
    tokens: Tensor  # (B, k, t)
    log_probabilities: Tensor  # (B, k, t)
    parents: Tensor  # (B, k): the beam of the previous step that each path extends

    @classmethod
    def empty(cls, sentences: int, device: torch.device) -> Paths:
        """One path without tokens for each sentence."""
        none = torch.zeros(sentences, 1, 0, device=device)
        start = torch.zeros(sentences, 1, device=device)
        return cls(start, none.long(), none, start.long())

    def extend(self, scores: Tensor, parents: Tensor, tokens: Tensor, log_probabilities: Tensor) -> Paths:
        """Continuations by one token each: their scores, parents, tokens and the tokens' log-probabilities, (B, C)."""
        return Paths(
            scores,
            torch.cat((_at(self.tokens, parents), tokens[..., None]), dim=-1),
            torch.cat((_at(self.log_probabilities, parents), log_probabilities[..., None]), dim=-1),
            parents,
        )

    def select(self, ranks: Tensor) -> Paths:
        """The paths of each sentence at some ranks, (B, k')."""
        return Paths(
            self.scores.gather(1, ranks),
            _at(self.tokens, ranks),
            _at(self.log_probabilities, ranks),
            self.parents.gather(1, ranks),
        )

    def of(self, sentences: Tensor | int) -> Paths:
        """The paths of some sentences, or of one sentence (then without the first dimension)."""
        return Paths(*(x[sentences] for x in (self.scores, self.tokens, self.log_probabilities, self.parents)))


@dataclass(frozen=True)
class Expansion:
    """One step of the search, for `watch`: the candidates, and which were finished, kept or pruned."""

    sentences: list[int]
    candidates: Paths  # (B, C)
    finished: Tensor  # (B, C): is a finished output
    kept: Tensor  # (B, C): is a beam of the next step
    beams: Tensor  # (B, k): the rank of the candidate that each next beam is
    length_penalty: float


def length_penalised(log_probability: float, length: int, alpha: float) -> float:
    """log-probability / length^α."""
    return log_probability / math.pow(length, alpha)


def _at(x: Tensor, ranks: Tensor) -> Tensor:
    """Rows of (B, k, t) at ranks (B, k'): (B, k', t)."""
    return x.gather(1, ranks[:, :, None].expand(-1, -1, x.shape[-1]))
