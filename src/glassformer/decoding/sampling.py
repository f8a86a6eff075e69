"""Sampling: draw the next token by its probability, from all tokens or from the likely ones only.

B sentences, V vocabulary, N tokens that may be drawn
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import torch
from torch import Tensor

from glassformer.errors import ConfigurationError, InputError


class Sampler:
    """Draws tokens, each sentence with its own random numbers, so that its batch mates change nothing.

    temperature   log-probabilities are divided by it: below 1 surer, above 1 wilder
    top_k         only the k likeliest tokens
    top_p         only the fewest tokens that together have probability p (of what top_k left)
    min_p         only tokens with at least p times the probability of the likeliest
    seed          one number a sentence, or one for all: each then gets random numbers of its own by its place

    A sampler goes on with its random numbers from call to call: to repeat an output, make a new one.
    """

    def __init__(
        self,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        seed: int | Sequence[int] = 0,
    ) -> None:
        if not 0 < temperature < math.inf:
            raise ConfigurationError(
                f"temperature must be above 0, not {temperature}: for no randomness use greedy decoding"
            )
        if top_k is not None and top_k < 1:
            raise ConfigurationError(f"top_k must be at least 1, not {top_k}")
        if top_p is not None and not 0 < top_p <= 1:
            raise ConfigurationError(f"top_p must be above 0 and at most 1, not {top_p}")
        if min_p is not None and not 0 <= min_p <= 1:
            raise ConfigurationError(f"min_p must be from 0 to 1, not {min_p}")
        self.temperature, self.top_k, self.top_p, self.min_p, self.seed = temperature, top_k, top_p, min_p, seed
        self._random: dict[int, random.Random] = {}

    def __call__(self, scores: Tensor, sentences: Sequence[int]) -> Tensor:
        """Log-probabilities (B, V) of these sentences to one drawn token each, (B)."""
        probabilities, tokens = self.likely(scores)  # (B, N) each
        cumulative = probabilities.cumsum(dim=-1)
        draws = torch.tensor(
            [self._draw(sentence) for sentence in sentences], dtype=torch.float64, device=scores.device
        )
        drawn = torch.searchsorted(cumulative, draws[:, None] * cumulative[:, -1:], right=True)  # (B, 1)
        last = (probabilities > 0).sum(dim=-1, keepdim=True) - 1  # rounding must not draw what has no probability
        return tokens.gather(1, drawn.minimum(last).clamp(min=0))[:, 0]

    def likely(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """The tokens that may be drawn, likeliest first, and their probabilities (0 for those left out), (B, N)."""
        count = scores.shape[-1] if self.top_k is None else min(self.top_k, scores.shape[-1])
        kept, tokens = scores.topk(count, dim=-1)
        probabilities = ((kept - kept[:, :1]).double() / self.temperature).softmax(dim=-1)
        if self.top_p is not None and self.top_p < 1:
            before = probabilities.cumsum(dim=-1) - probabilities
            probabilities = probabilities.masked_fill(before >= self.top_p, 0.0)
        if self.min_p is not None:
            probabilities = probabilities.masked_fill(probabilities < self.min_p * probabilities[:, :1], 0.0)
        return probabilities / probabilities.sum(dim=-1, keepdim=True), tokens

    def _draw(self, sentence: int) -> float:
        """The sentence's next random number, in [0, 1)."""
        if sentence not in self._random:
            if isinstance(self.seed, Sequence) and sentence >= len(self.seed):
                raise InputError(
                    f"there are {len(self.seed)} seeds, but a sentence number {sentence}: give one seed each"
                )
            own = self.seed[sentence] if isinstance(self.seed, Sequence) else f"{self.seed} {sentence}"
            self._random[sentence] = random.Random(str(own))  # as text: as a number, -1 would be 1
        return self._random[sentence].random()
