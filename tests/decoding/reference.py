"""Beam search as it was before it moved into tensors: finished outputs in Python lists, the host asked at each step.

Slow, but simple: what the search of the library finds is compared with it, token for token.

B sentences, k beams, C candidates, V vocabulary, t length so far
"""

from __future__ import annotations

import math
from bisect import insort
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from glassformer.decoding.limits import Limits, Prefix, Scorer
from glassformer.decoding.protocol import (
    NOT_FINITE,
    Generator,
    Hypothesis,
    evaluating,
    first_of,
    first_tokens,
    parts_of,
)
from glassformer.errors import InputError, NonFiniteError

EarlyStopping = Literal["never", "estimated", "filled"]


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

    def extend(self, log_probabilities: Tensor, count: int) -> Paths:
        """The `count` best continuations by one token, given its log-probabilities (B, k, V)."""
        each, tokens = log_probabilities.topk(min(count, log_probabilities.shape[-1]), dim=-1)  # (B, k, C)
        totals = (self.scores[:, :, None] + each).flatten(1)  # (B, k * C)
        scores, chosen = totals.topk(min(count, totals.shape[1]), dim=-1)  # (B, count)
        parents = chosen // each.shape[-1]
        return Paths(
            scores,
            torch.cat((_at(self.tokens, parents), tokens.flatten(1).gather(1, chosen)[..., None]), dim=-1),
            torch.cat((_at(self.log_probabilities, parents), each.flatten(1).gather(1, chosen)[..., None]), dim=-1),
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


def length_penalised(log_probability: float, length: int, alpha: float) -> float:
    """log-probability / length^α."""
    return log_probability / math.pow(length, alpha)


class BestHypotheses:
    """The best finished outputs of one sentence so far, best first."""

    def __init__(self, best: int, limits: Limits, alpha: float, early: EarlyStopping = "never") -> None:
        self.best, self.limits, self.alpha, self.early = best, limits, alpha, early
        self.hypotheses: list[Hypothesis] = []

    def add(self, tokens: list[int], log_probabilities: list[float], log_probability: float) -> None:
        """Add an output if it is among the best."""
        finished = tokens[-1] in self.limits.ends
        score = length_penalised(log_probability, len(tokens), self.alpha)
        written = tokens[:-1] if finished else tokens
        insort(
            self.hypotheses,
            Hypothesis(written, score, log_probability, log_probabilities, finished),
            key=lambda hypothesis: -hypothesis.score,
        )
        del self.hypotheses[self.best :]

    def settled(self, log_probability: float, length: int) -> bool:
        """Whether the search stops, where the best beam has this log-probability and this length."""
        if log_probability == -math.inf:
            return True
        if len(self.hypotheses) < self.best or self.early == "filled":
            return len(self.hypotheses) == self.best
        never = self.limits.max_length if self.alpha > 0 else length + 1
        reach = never if self.early == "never" else length
        return self.hypotheses[-1].score >= length_penalised(log_probability, reach, self.alpha)


@torch.inference_mode()
def beam_search(
    model: Generator,
    *inputs: Any,
    limits: Limits,
    width: int = 5,
    best: int = 1,
    length_penalty: float = 1.0,
    early_stopping: EarlyStopping = "never",
    prefix: Prefix | None = None,
) -> list[list[Hypothesis]]:
    """The `best` outputs of each sentence, best first."""
    source = first_of(inputs)
    with evaluating(parts_of(model)):
        state = model.start(*inputs)
        collected = best if early_stopping == "never" else width
        found = [BestHypotheses(collected, limits, length_penalty, early_stopping) for _ in source]
        score = Scorer(limits, prefix, inputs, greedily=False)
        ends = torch.tensor(limits.ends, device=source.device)
        sentences = list(range(len(found)))
        paths = Paths.empty(len(found), source.device)
        tokens = first_tokens(state, limits.start, len(found), source.device)
        for length in range(1, limits.max_length + 1):
            logits, state = model.step(state, tokens)
            candidates = paths.extend(score(logits, paths.tokens, sentences), (1 + len(limits.ends)) * width)
            closing = (candidates.tokens[:, :, -1:] == ends).any(dim=-1)
            if length == limits.max_length:
                closing = torch.ones_like(closing)
            finished = closing & candidates.scores.isfinite()
            finished[:, width:] = False
            _finish(candidates, finished, [found[sentence] for sentence in sentences])
            unfinished = candidates.scores.masked_fill(closing, -torch.inf)
            scores, beams = unfinished.topk(min(width, unfinished.shape[1]), dim=-1)  # (B, k)
            paths = candidates.select(beams)
            paths.scores = scores  # -inf for paths that have ended
            likeliest, highest = torch.stack((candidates.scores[:, 0], scores[:, 0])).tolist()
            for sentence, total in zip(sentences, likeliest, strict=True):
                if math.isnan(total):
                    raise NonFiniteError(NOT_FINITE.format(sentence))
            open_rows = [row for row, s in enumerate(sentences) if not found[s].settled(highest[row], length)]
            if not open_rows:
                break
            rows = None
            if len(open_rows) < len(sentences):
                rows = torch.tensor(open_rows, device=tokens.device)
                paths, sentences = paths.of(rows), [sentences[row] for row in open_rows]
            state.select(paths.parents, rows)
            tokens = paths.tokens[:, :, -1]  # (B, k)
    for sentence, each in enumerate(found):
        if not each.hypotheses:
            raise InputError(f"sentence {sentence}: every allowed output has probability 0")
    return [each.hypotheses[:best] for each in found]


def _finish(candidates: Paths, finished: Tensor, found: list[BestHypotheses]) -> None:
    """Add each finished candidate to the hypotheses of its sentence."""
    for row, rank in finished.nonzero().tolist():
        found[row].add(
            candidates.tokens[row, rank].tolist(),
            candidates.log_probabilities[row, rank].tolist(),
            candidates.scores[row, rank].item(),
        )


def _at(x: Tensor, ranks: Tensor) -> Tensor:
    """Rows of (B, k, t) at ranks (B, k'): (B, k', t)."""
    return x.gather(1, ranks[:, :, None].expand(-1, -1, x.shape[-1]))
