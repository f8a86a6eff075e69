"""Limits: what an output may look like, and how that is imposed on a model's scores.

B sentences, k beams, V vocabulary, t length of a forced beginning
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import index

import torch
from torch import Tensor

from glassformer.errors import ConfigurationError, InputError

Prefix = Sequence[Sequence[int]] | Tensor  # a forced beginning for each sentence; as a tensor (B, t) all are as long


@dataclass(frozen=True)
class Limits:
    """What an output may look like.

    `start` is what the decoder reads first (None: it goes on with a prompt), `end` is what closes an output.
    `max_length` counts every token written, the end included; `min_length` counts the tokens before the end. Tokens in
    `suppress` are never written.
    """

    start: int | None
    end: int
    max_length: int = 256
    min_length: int = 0
    suppress: Sequence[int] = ()

    def __post_init__(self) -> None:
        """Refuse lengths that no output can have."""
        if self.max_length < 1:
            raise ConfigurationError(f"max_length must be at least 1, not {self.max_length}")
        if not 0 <= self.min_length <= self.max_length:
            raise ConfigurationError(f"min_length must be 0 to max_length ({self.max_length}), not {self.min_length}")

    def check(self, vocabulary: int, given: int | None = 0) -> None:
        """Refuse tokens that the model does not have, and suppressing everything that it has.

        `given` is how many tokens are forced before the model writes its first; None: it never writes any.
        """
        named = [("start", self.start), ("end", self.end), *(("suppress", token) for token in self.suppress)]
        for name, token in named:
            if token is not None and not 0 <= token < vocabulary:
                raise ConfigurationError(f"the {name} token {token} is not among the ids 0 to {vocabulary - 1}")
        if given is not None and len({*self.banned(given)}) == vocabulary:
            raise ConfigurationError("every token of the vocabulary is suppressed: nothing can be written")

    def banned(self, length: int) -> list[int]:
        """The tokens that may not be written after `length` others."""
        return [*self.suppress, *([self.end] if length < self.min_length else [])]


class Scorer:
    """Turns a model's logits into log-probabilities of what may come next.

    What may not come gets -inf; the others keep the model's own log-probability, so that the score of an output is
    the one that the model gives it. A forced beginning overrides the limits: it is what the user asked for.
    """

    def __init__(self, limits: Limits, prefix: Prefix | None, sentences: int) -> None:
        self.limits, self.prefix = limits, None if prefix is None else _lists(prefix)
        if self.prefix is not None and len(self.prefix) != sentences:
            raise InputError(
                f"there are {len(self.prefix)} prefixes for {sentences} sentences: give one each (it may be empty)"
            )
        for tokens in self.prefix or ():
            if len(tokens) > limits.max_length:
                raise InputError(f"a prefix of {len(tokens)} tokens does not fit into max_length {limits.max_length}")
            if limits.end in tokens:
                raise InputError(f"a prefix holds the end token {limits.end}: nothing can follow it")
        self._checked = False
        self._banned: dict[bool, Tensor] = {}  # by whether the output may end yet

    def __call__(self, logits: Tensor, length: int, sentences: Sequence[int]) -> Tensor:
        """Log-probabilities (B, k, V) of the next token, `length` tokens into these sentences."""
        if not self._checked:
            self._check(logits.shape[-1])
        scores = logits.float().log_softmax(dim=-1)
        forced = [(row, token, scores[row, :, token].clone()) for row, token in self._forced(length, sentences)]
        may_end = length >= self.limits.min_length
        if may_end not in self._banned:  # made once, so that an accelerator is not waited for at each step
            banned = torch.tensor(self.limits.banned(length), dtype=torch.long)
            self._banned[may_end] = banned.to(scores.device)
        scores.index_fill_(-1, self._banned[may_end], -torch.inf)
        for row, token, score in forced:
            if not score.isfinite().any():
                raise InputError(f"the model gives the prefix token {token} no probability: it cannot be forced")
            scores[row] = -torch.inf
            scores[row, :, token] = score
        return scores

    def _forced(self, length: int, sentences: Sequence[int]) -> list[tuple[int, int]]:
        """The rows whose next token is given, and that token."""
        prefixes = [self.prefix[sentence] for sentence in sentences] if self.prefix else []
        return [(row, tokens[length]) for row, tokens in enumerate(prefixes) if length < len(tokens)]

    def _check(self, vocabulary: int) -> None:
        given = [0] if self.prefix is None else [len(tokens) for tokens in self.prefix]
        self.limits.check(vocabulary, min((each for each in given if each < self.limits.max_length), default=None))
        wrong = [token for tokens in self.prefix or () for token in tokens if not 0 <= token < vocabulary]
        if wrong:
            raise InputError(f"a prefix holds the id {wrong[0]}, but the vocabulary has the ids 0 to {vocabulary - 1}")
        self._checked = True


def _lists(prefix: Prefix) -> list[list[int]]:
    """Forced beginnings as lists of whole numbers, whatever they came in."""
    try:
        rows = prefix.tolist() if isinstance(prefix, Tensor) else prefix
        return [[index(token) for token in row] for row in rows]
    except TypeError:
        raise InputError("a prefix is a list or tensor of token ids for each sentence: whole numbers only") from None
