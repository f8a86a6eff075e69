"""Sampling: draw the next token by its probability, from all tokens or only from the most likely ones.

B sentences, V vocabulary, N tokens that may be drawn
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import torch
from torch import Tensor

from glassformer.decoding.largest import largest
from glassformer.errors import ConfigurationError, InputError


class Sampler:
    """Draws tokens. Each sentence has its own random numbers, so that the other sentences of a batch have no effect.

    temperature   divides the log-probabilities: below 1 the distribution is sharper, above 1 flatter
    top_k         only the k most likely tokens
    top_p         only the smallest set of tokens that together have probability p (after top_k)
    min_p         only tokens with at least p times the probability of the most likely one
    seed          one number per sentence, or one number from which each sentence gets its own by its index

    A sampler continues its random numbers from call to call: to repeat an output, create a new sampler.
    """

    def __init__(
        self,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        seed: int | Sequence[int | str] = 0,
    ) -> None:
        if not 0 < temperature < math.inf:
            raise ConfigurationError(
                f"temperature must be above 0, not {temperature}: use greedy decoding for an output without randomness"
            )
        if top_k is not None and top_k < 1:
            raise ConfigurationError(f"top_k must be at least 1, not {top_k}")
        if top_p is not None and not 0 < top_p <= 1:
            raise ConfigurationError(f"top_p must be above 0 and at most 1, not {top_p}")
        if min_p is not None and not 0 <= min_p <= 1:
            raise ConfigurationError(f"min_p must be from 0 to 1, not {min_p}")
        self.temperature, self.top_k, self.top_p, self.min_p, self.seed = temperature, top_k, top_p, min_p, seed
        self._random: dict[int, random.Random] = {}
        self._drawn: dict[int, list[float]] = {}  # numbers that were drawn ahead, not used yet

    def seeded(self, seeds: Sequence[int | str]) -> Sampler:
        """The same sampler with new random numbers, and a seed for each sentence."""
        return Sampler(self.temperature, self.top_k, self.top_p, self.min_p, seeds)

    def __call__(self, scores: Tensor, sentences: Sequence[int]) -> Tensor:
        """Draw one token (B) for each of these sentences from log-probabilities (B, V)."""
        numbers = [number for (number,) in (self.ahead(sentence, 1) for sentence in sentences)]
        for sentence in sentences:
            self.used(sentence)
        return self.pick(scores, torch.tensor(numbers, dtype=torch.float64, device=scores.device))

    @property
    def key(self) -> tuple[float | None, ...]:
        """What `pick` depends on apart from its arguments."""
        return self.temperature, self.top_k, self.top_p, self.min_p

    def pick(self, scores: Tensor, draws: Tensor) -> Tensor:
        """The tokens (B) that random numbers (B) draw from log-probabilities (B, V)."""
        probabilities, tokens = self.likely(scores)  # (B, N) each
        cumulative = probabilities.cumsum(dim=-1)
        drawn = torch.searchsorted(cumulative, draws[:, None] * cumulative[:, -1:], right=True)  # (B, 1)
        last = (probabilities > 0).sum(dim=-1, keepdim=True) - 1  # rounding could draw a token of probability 0
        return tokens.gather(1, drawn.minimum(last).clamp(min=0))[:, 0]

    def likely(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """The probabilities (0 for tokens that may not be drawn), highest first, and their tokens, (B, N) each."""
        count = scores.shape[-1] if self.top_k is None else min(self.top_k, scores.shape[-1])
        kept, tokens = largest(scores, count)
        probabilities = ((kept - kept[:, :1]).double() / self.temperature).softmax(dim=-1)
        if self.top_p is not None and self.top_p < 1:
            before = probabilities.cumsum(dim=-1) - probabilities
            probabilities = probabilities.masked_fill(before >= self.top_p, 0.0)
        if self.min_p is not None:
            probabilities = probabilities.masked_fill(probabilities < self.min_p * probabilities[:, :1], 0.0)
        return probabilities / probabilities.sum(dim=-1, keepdim=True), tokens

    def ahead(self, sentence: int, count: int) -> list[float]:
        """The sentence's next random numbers, in [0, 1). They stay the next ones until they are used."""
        if sentence not in self._random:
            if isinstance(self.seed, Sequence) and sentence >= len(self.seed):
                raise InputError(
                    f"there are {len(self.seed)} seeds, but there is a sentence {sentence}: expected one seed each"
                )
            own = self.seed[sentence] if isinstance(self.seed, Sequence) else f"{self.seed} {sentence}"
            self._random[sentence] = random.Random(str(own))  # as text: the numbers -1 and 1 would give the same
            self._drawn[sentence] = []
        numbers, draw = self._drawn[sentence], self._random[sentence].random
        numbers += [draw() for _ in range(count - len(numbers))]
        return numbers[:count]

    def used(self, sentence: int) -> None:
        """The sentence's next random number has drawn a token."""
        self._drawn[sentence].pop(0)
