"""Limits: which outputs are allowed, and how the logits of a model are restricted to them.

The rules are those of `generate` in `transformers`, and mean the same.

B sentences, k beams, V vocabulary, t length so far, H length of the history, N tokens that are not allowed
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from glassformer.decoding.history import NONE, Histories, among, completing, penalised, repeating, tables
from glassformer.decoding.largest import in_groups, largest, suits_groups
from glassformer.errors import ConfigurationError, InputError
from glassformer.parts import cpu_kernels

MOST_LIKELIEST = 256  # tokens that a kernel on a CPU keeps in order

# The first tokens of each output; as a tensor (B, t), all have the same length.
Prefix = Sequence[Sequence[int]] | Tensor


@dataclass(frozen=True)
class Limits:
    """Which outputs are allowed.

    `start` is the first input of the decoder (None: it continues a prompt), `end` is the last token of an output, or
    several tokens of which any is. `max_length` counts all generated tokens, the end token included; `min_length`
    counts the tokens before it. Tokens in `suppress` and sequences of tokens in `suppress_sequences` are never
    generated, nor is a sequence of `no_repeat_ngram` tokens that is in the history already (0: it may be).

    A `repetition_penalty` above 1 makes the tokens of the history less likely. `forced_first` is the token after a
    history of one token, `forced_last` is the last one of `max_length`; both get the log-probability 0. With
    `renormalise`, the probabilities of the allowed tokens are scaled to the sum 1.
    """

    start: int | None
    end: int | Sequence[int]
    max_length: int = 256
    min_length: int = 0
    suppress: Sequence[int] = ()
    suppress_sequences: Sequence[Sequence[int]] = ()
    no_repeat_ngram: int = 0
    repetition_penalty: float = 1.0
    forced_first: int | None = None
    forced_last: int | None = None
    renormalise: bool = False

    def __post_init__(self) -> None:
        """Refuse values that are impossible."""
        if self.max_length < 1:
            raise ConfigurationError(f"max_length must be at least 1, not {self.max_length}")
        if not 0 <= self.min_length <= self.max_length:
            raise ConfigurationError(
                f"min_length must be from 0 to max_length ({self.max_length}), not {self.min_length}"
            )
        if self.no_repeat_ngram < 0:
            raise ConfigurationError(f"no_repeat_ngram must be at least 0, not {self.no_repeat_ngram}")
        if not 0 < self.repetition_penalty < torch.inf:
            raise ConfigurationError(f"repetition_penalty must be above 0, not {self.repetition_penalty}")
        if not self.ends:
            raise ConfigurationError("there must be at least one end token")
        if not all(self.suppress_sequences):
            raise ConfigurationError("suppress_sequences has an empty sequence")

    @property
    def ends(self) -> tuple[int, ...]:
        """The tokens that end an output."""
        return (self.end,) if isinstance(self.end, int) else tuple(self.end)

    @property
    def looks_back(self) -> bool:
        """Whether what may come next depends on the history."""
        rules = self.suppress_sequences or self.no_repeat_ngram or self.forced_first is not None
        return bool(rules) or self.repetition_penalty != 1

    @property
    def changes_probabilities(self) -> bool:
        """Whether allowed tokens may have another probability than the model gives them."""
        forces = self.forced_first is not None or self.forced_last is not None
        return forces or self.renormalise or self.repetition_penalty != 1

    def check(self, vocabulary: int, given: int | None = 0) -> None:
        """Refuse ids that are not in the vocabulary, and limits that suppress the whole vocabulary.

        `given` is the number of prefix tokens before the first token that the model chooses; None: it chooses none.
        """
        named = [("start", self.start), *(("end", token) for token in self.ends)]
        named += [("suppress", token) for token in self.suppress]
        named += [("suppress_sequences", token) for tokens in self.suppress_sequences for token in tokens]
        for name, token in [*named, ("forced_first", self.forced_first), ("forced_last", self.forced_last)]:
            if token is not None and not 0 <= token < vocabulary:
                raise ConfigurationError(
                    f"the {name} token {token} is not in the vocabulary, which has the ids 0 to {vocabulary - 1}"
                )
        if given is not None and len({*self.banned(given)}) == vocabulary:
            raise ConfigurationError("every token of the vocabulary is suppressed: no output is possible")

    def banned(self, length: int) -> list[int]:
        """The tokens that are not allowed after `length` others, whatever these are."""
        return [*self.suppress, *(self.ends if length < self.min_length else [])]


class Scorer:
    """Turns the logits of a model into log-probabilities of the allowed next tokens.

    Other tokens get -inf; allowed tokens keep the log-probability of the model, so that the score of an output is the
    one that the model gives it, unless limits with a repetition penalty or `renormalise` change it. A prefix overrides
    the limits, because the user chose it.

    `greedily` says what a repetition penalty changes: the logits if one token is chosen at a time, the
    log-probabilities if the sums of whole outputs are compared.
    """

    def __init__(self, limits: Limits, prefix: Prefix | None, inputs: Sequence[Any], greedily: bool) -> None:
        self.limits, self.prefix, self.greedily = limits, None if prefix is None else _lists(prefix), greedily
        if self.prefix is not None and len(self.prefix) != len(inputs[0]):
            raise InputError(
                f"there are {len(self.prefix)} prefixes for {len(inputs[0])} sentences: "
                "expected one each (it may be empty)"
            )
        for tokens in self.prefix or ():
            if len(tokens) > limits.max_length:
                raise InputError(f"a prefix of {len(tokens)} tokens does not fit into max_length {limits.max_length}")
            for end in {*limits.ends} & {*tokens}:
                raise InputError(f"a prefix contains the end token {end}: no token can follow it")
        self._checked: int | None = None  # the vocabulary that the limits were compared with
        self._histories = Histories(limits.start, inputs) if limits.looks_back else None
        # Created once, because a copy at each step would wait for the device.
        self._sequences = tables(limits.suppress_sequences, inputs[0].device)
        self._banned: dict[bool, Tensor] = {}  # by whether the output may end
        self._sentences = list(range(len(inputs[0])))
        self.ends = torch.tensor(limits.ends).to(inputs[0].device)
        self._suppressed = torch.tensor([*limits.suppress], dtype=torch.long).to(inputs[0].device)

    @property
    def key(self) -> tuple[Any, ...]:
        """What `at` depends on apart from its arguments."""
        limits = self.limits
        always = limits.ends, tuple(limits.suppress), limits.min_length > 0, limits.forced_last, limits.renormalise
        back = tuple(map(tuple, limits.suppress_sequences)), limits.no_repeat_ngram, limits.repetition_penalty
        return always, back, limits.forced_first, self.greedily

    def history(self, steps: int) -> Tensor:
        """What rules that look back read before the first step, (B, 1, H), with room for some steps before it.

        NONE stands before a shorter history. Without such rules, H is 0.
        """
        if self._histories is None:
            return torch.zeros(len(self._sentences), 1, 0, dtype=torch.long, device=self.ends.device)
        none = self.ends.new_empty(len(self._sentences), 1, 0)
        return F.pad(self._histories.after(none, self._sentences), (steps, 0), value=NONE)

    def ending(self, tokens: Tensor) -> Tensor:
        """Which tokens end an output."""
        if len(self.ends) == 1:
            return tokens == self.ends
        return (tokens[..., None] == self.ends).any(dim=-1)

    def at(self, logits: Tensor, step: Tensor, bounds: Tensor, history: Tensor) -> Tensor:
        """Log-probabilities (B, k, V) of the next token, where there is no prefix, without a look at the host.

        `step` (1) is the number of tokens so far, `bounds` (2) are the least and the most; of the history (B, k, H)
        only rules that look back read anything.
        """
        limits = self.limits
        if limits.repetition_penalty == 1:
            scores = logits.log_softmax(dim=-1, dtype=torch.float32)
        else:
            scores = self._log_probabilities(logits.float(), history)
        self._ban(scores, step, bounds)
        if limits.looks_back:
            self._look_back(scores, history)
        if limits.forced_first is not None:
            _force(scores, limits.forced_first, (step == 0) & ((history >= 0).sum(dim=-1, keepdim=True) == 1))
        if limits.forced_last is not None:
            _force(scores, limits.forced_last, step == bounds[1:] - 1)
        return self._scaled(scores)

    def likeliest(
        self, logits: Tensor, step: Tensor, bounds: Tensor, history: Tensor, count: int
    ) -> tuple[Tensor, Tensor]:
        """The `count` likeliest next tokens, the likeliest first: what `at` gives them, and which they are."""
        found = self._found(logits, history, count)
        if found is None:
            return largest(self.at(logits, step, bounds, history), count)
        values, tokens = found  # (B, k, N)
        if len(self._suppressed):
            values.masked_fill_((tokens[..., None] == self._suppressed).any(dim=-1), -torch.inf)
        if self.limits.min_length:
            values.masked_fill_(self.ending(tokens) & (step < bounds[:1]), -torch.inf)
        values, ranks = values.topk(count, dim=-1)
        return values, tokens.gather(-1, ranks)

    def _found(self, logits: Tensor, history: Tensor, count: int) -> tuple[Tensor, Tensor] | None:
        """Log-probabilities and tokens (B, k, N) by a kernel, the `count` likeliest that are allowed among them.

        Those that the history does not allow have -inf. None: there is no kernel for these logits, or there are rules
        that change what is likely.
        """
        if self.limits.changes_probabilities:
            return None
        many = count + len(self._suppressed) + len(self.ends)
        if logits.is_cuda:
            usable = not self.limits.looks_back and suits_groups(logits, many)
            return in_groups(logits, count, self.limits.banned(0)) if usable else None
        if not cpu_kernels.suits(logits):
            return None
        completing = [*self._completing(history)]  # (B, k, N') each
        many += sum(int((tokens >= 0).sum(dim=-1).max()) for tokens in completing if tokens.numel())
        if many > min(MOST_LIKELIEST, logits.shape[-1]):
            return None
        values, tokens = cpu_kernels.likeliest(logits, many)
        for banned in completing:
            values.masked_fill_((tokens[..., None] == banned[..., None, :]).any(dim=-1), -torch.inf)
        return values, tokens

    def _ban(self, scores: Tensor, step: Tensor, bounds: Tensor) -> None:
        """Write -inf for tokens that are never allowed, and for the end before the least length."""
        if len(self._suppressed):
            scores.index_fill_(-1, self._suppressed, -torch.inf)
        if not self.limits.min_length:
            return
        early = step < bounds[:1]
        if scores.is_cuda:
            ends = scores.index_select(-1, self.ends).masked_fill(early, -torch.inf)
            scores.index_copy_(-1, self.ends, ends)
        elif early:
            scores.index_fill_(-1, self.ends, -torch.inf)

    def _look_back(self, scores: Tensor, history: Tensor) -> None:
        """Write -inf for tokens that the history (B, k, H) does not allow."""
        for tokens in self._completing(history):  # (B, k, N)
            scores.masked_fill_(among(tokens, scores.shape[-1]), -torch.inf)

    def _completing(self, history: Tensor) -> Iterator[Tensor]:
        """Tokens that would complete a sequence that is not allowed after a history (B, k, H): (B, k, N) at a time."""
        yield from completing(history, self._sequences)
        if self.limits.no_repeat_ngram:
            yield repeating(history, self.limits.no_repeat_ngram)

    def __call__(self, logits: Tensor, written: Tensor, sentences: Sequence[int]) -> Tensor:
        """Log-probabilities (B, k, V) of the next token of these sentences after those written so far, (B, k, t)."""
        length = written.shape[-1]
        self.check(logits.shape[-1])
        history = None if self._histories is None else self._histories.after(written, sentences)  # (B, k, H)
        scores = self._log_probabilities(logits.float(), history)
        prefixed = [(row, token, scores[row, :, token].clone()) for row, token in self._prefixed(length, sentences)]
        scores = self._restricted(scores, length, history)
        for row, token, score in prefixed:
            if score.isneginf().all():
                raise InputError(f"the prefix token {token} has probability 0: it cannot be forced")
            scores[row] = -torch.inf
            scores[row, :, token] = score
        return self._scaled(scores)

    def _scaled(self, scores: Tensor) -> Tensor:
        """Scores (B, k, V), which are written over, scaled to the sum 1 if the limits say so."""
        if self.limits.renormalise:  # where nothing is allowed, all stays -inf
            scores -= scores.logsumexp(dim=-1, keepdim=True).clamp(min=torch.finfo(scores.dtype).min)
        return scores

    def _log_probabilities(self, logits: Tensor, history: Tensor | None) -> Tensor:
        """Log-probabilities (B, k, V), with the repetition penalty; the logits are not written over."""
        penalty = self.limits.repetition_penalty
        if history is None or penalty == 1:
            return logits.log_softmax(dim=-1)
        if self.greedily:
            return penalised(logits, history, penalty).log_softmax(dim=-1)
        return penalised(logits.log_softmax(dim=-1), history, penalty)

    def _restricted(self, scores: Tensor, length: int, history: Tensor | None) -> Tensor:
        """Scores (B, k, V), which are written over, with -inf for tokens that are not allowed."""
        limits, may_end = self.limits, length >= self.limits.min_length
        if may_end not in self._banned:
            self._banned[may_end] = torch.tensor(limits.banned(length), dtype=torch.long).to(scores.device)
        scores.index_fill_(-1, self._banned[may_end], -torch.inf)
        if history is not None:
            self._look_back(scores, history)
            if limits.forced_first is not None and length == 0:
                alone = (history >= 0).sum(dim=-1, keepdim=True) == 1  # (B, k, 1)
                scores = torch.where(alone, _only(limits.forced_first, scores), scores)
        if limits.forced_last is not None and length == limits.max_length - 1:
            scores = _only(limits.forced_last, scores)
        return scores

    def _prefixed(self, length: int, sentences: Sequence[int]) -> list[tuple[int, int]]:
        """The rows whose next token is in the prefix, and that token."""
        prefixes = [self.prefix[sentence] for sentence in sentences] if self.prefix else []
        return [(row, tokens[length]) for row, tokens in enumerate(prefixes) if length < len(tokens)]

    def check(self, vocabulary: int) -> None:
        """Refuse limits and prefixes that this vocabulary does not allow."""
        if self._checked == vocabulary:
            return
        given = [0] if self.prefix is None else [len(tokens) for tokens in self.prefix]
        self.limits.check(vocabulary, min((each for each in given if each < self.limits.max_length), default=None))
        wrong = [token for tokens in self.prefix or () for token in tokens if not 0 <= token < vocabulary]
        if wrong:
            raise InputError(f"a prefix has the id {wrong[0]}, but the vocabulary has the ids 0 to {vocabulary - 1}")
        self._checked = vocabulary


def _force(scores: Tensor, token: int, now: Tensor) -> None:
    """Make one token certain in scores (B, k, V), which are written over, if this is the step for it, (1)."""
    certain = scores[..., token : token + 1].masked_fill(now, 0.0)
    scores.masked_fill_(now, -torch.inf)
    scores[..., token : token + 1] = certain


def _only(token: int, scores: Tensor) -> Tensor:
    """Scores in which one token is certain."""
    certain = torch.full_like(scores, -torch.inf)
    certain[..., token] = 0.0
    return certain


def _lists(prefix: Prefix) -> list[list[int]]:
    """Prefixes as lists of integers."""
    try:
        rows = prefix.tolist() if isinstance(prefix, Tensor) else prefix
        return [[index(token) for token in row] for row in rows]
    except TypeError:
        raise InputError(
            "a prefix must be a list or tensor of token ids for each sentence, and ids must be integers"
        ) from None
