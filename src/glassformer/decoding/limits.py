"""Limits: which outputs are allowed, and how the logits of a model are restricted to them.

B sentences, k beams, V vocabulary, t length of a prefix
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import index

import torch
from torch import Tensor

from glassformer.errors import ConfigurationError, InputError

# The first tokens of each output; as a tensor (B, t), all have the same length.
Prefix = Sequence[Sequence[int]] | Tensor


@dataclass(frozen=True)
class Limits:
    """Which outputs are allowed.

    `start` is the first input of the decoder (None: it continues a prompt), `end` is the last token of an output.
    `max_length` counts all generated tokens, the end token included; `min_length` counts the tokens before it. Tokens
    in `suppress` are never generated.
    """

    start: int | None
    end: int
    max_length: int = 256
    min_length: int = 0
    suppress: Sequence[int] = ()

    def __post_init__(self) -> None:
        """Refuse lengths that are impossible."""
        if self.max_length < 1:
            raise ConfigurationError(f"max_length must be at least 1, not {self.max_length}")
        if not 0 <= self.min_length <= self.max_length:
            raise ConfigurationError(
                f"min_length must be from 0 to max_length ({self.max_length}), not {self.min_length}"
            )

    def check(self, vocabulary: int, given: int | None = 0) -> None:
        """Refuse ids that are not in the vocabulary, and limits that suppress the whole vocabulary.

        `given` is the number of prefix tokens before the first token that the model chooses; None: it chooses none.
        """
        named = [("start", self.start), ("end", self.end), *(("suppress", token) for token in self.suppress)]
        for name, token in named:
            if token is not None and not 0 <= token < vocabulary:
                raise ConfigurationError(
                    f"the {name} token {token} is not in the vocabulary, which has the ids 0 to {vocabulary - 1}"
                )
        if given is not None and len({*self.banned(given)}) == vocabulary:
            raise ConfigurationError("every token of the vocabulary is suppressed: no output is possible")

    def banned(self, length: int) -> list[int]:
        """The tokens that are not allowed after `length` others."""
        return [*self.suppress, *([self.end] if length < self.min_length else [])]


class Scorer:
    """Turns the logits of a model into log-probabilities of the allowed next tokens.

    Other tokens get -inf; allowed tokens keep the log-probability of the model, so that the score of an output is the
    one that the model gives it. A prefix overrides the limits, because the user chose it.
    """

    def __init__(self, limits: Limits, prefix: Prefix | None, sentences: int) -> None:
        self.limits, self.prefix = limits, None if prefix is None else _lists(prefix)
        if self.prefix is not None and len(self.prefix) != sentences:
            raise InputError(
                f"there are {len(self.prefix)} prefixes for {sentences} sentences: expected one each (it may be empty)"
            )
        for tokens in self.prefix or ():
            if len(tokens) > limits.max_length:
                raise InputError(f"a prefix of {len(tokens)} tokens does not fit into max_length {limits.max_length}")
            if limits.end in tokens:
                raise InputError(f"a prefix contains the end token {limits.end}: no token can follow it")
        self._checked = False
        self._banned: dict[bool, Tensor] = {}  # by whether the output may end

    def __call__(self, logits: Tensor, length: int, sentences: Sequence[int]) -> Tensor:
        """Log-probabilities (B, k, V) of the next token after `length` tokens of these sentences."""
        if not self._checked:
            self._check(logits.shape[-1])
        scores = logits.float().log_softmax(dim=-1)
        forced = [(row, token, scores[row, :, token].clone()) for row, token in self._forced(length, sentences)]
        may_end = length >= self.limits.min_length
        if may_end not in self._banned:  # created once, because a copy at each step would wait for the device
            banned = torch.tensor(self.limits.banned(length), dtype=torch.long)
            self._banned[may_end] = banned.to(scores.device)
        scores.index_fill_(-1, self._banned[may_end], -torch.inf)
        for row, token, score in forced:
            if not score.isfinite().any():
                raise InputError(f"the prefix token {token} has probability 0: it cannot be forced")
            scores[row] = -torch.inf
            scores[row, :, token] = score
        return scores

    def _forced(self, length: int, sentences: Sequence[int]) -> list[tuple[int, int]]:
        """The rows whose next token is in the prefix, and that token."""
        prefixes = [self.prefix[sentence] for sentence in sentences] if self.prefix else []
        return [(row, tokens[length]) for row, tokens in enumerate(prefixes) if length < len(tokens)]

    def _check(self, vocabulary: int) -> None:
        given = [0] if self.prefix is None else [len(tokens) for tokens in self.prefix]
        self.limits.check(vocabulary, min((each for each in given if each < self.limits.max_length), default=None))
        wrong = [token for tokens in self.prefix or () for token in tokens if not 0 <= token < vocabulary]
        if wrong:
            raise InputError(f"a prefix has the id {wrong[0]}, but the vocabulary has the ids 0 to {vocabulary - 1}")
        self._checked = True


def _lists(prefix: Prefix) -> list[list[int]]:
    """Prefixes as lists of integers."""
    try:
        rows = prefix.tolist() if isinstance(prefix, Tensor) else prefix
        return [[index(token) for token in row] for row in rows]
    except TypeError:
        raise InputError(
            "a prefix must be a list or tensor of token ids for each sentence, and ids must be integers"
        ) from None
