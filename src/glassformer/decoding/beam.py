"""Beam search: keep the k best beginnings, extend each, keep the k best again.

An output with tokens y₁ … yₙ (the end counted) has the score

    score(y) = Σ log p(yᵢ | y₁ … yᵢ₋₁, source) / n^α

where α is the length penalty: 0 ranks by probability, which favours short outputs; 1 by the average per token.
At each step the 2k likeliest continuations of a sentence's k beams are looked at. Those that end, and are among the
k likeliest, are finished; the k likeliest others go on.

A sentence stops when nothing can change its answer: log-probabilities only fall, so no continuation of a beam with
log-probability s can ever score above s / L^α, L being the longest length allowed (the next length where α < 0).

B sentences, k beams, C candidates, V vocabulary, t length so far
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from glassformer.decoding.limits import Limits, Prefix, Scorer
from glassformer.decoding.protocol import Generator, Hypothesis, evaluating, first_of, first_tokens, parts_of
from glassformer.errors import ConfigurationError, InputError


@dataclass
class Paths:
    """Partial outputs, best first: B sentences with k each."""

    scores: Tensor  # (B, k): the sum of log-probabilities; -inf: no path here
    tokens: Tensor  # (B, k, t)
    log_probabilities: Tensor  # (B, k, t)
    parents: Tensor  # (B, k): the beam of the step before that each one extends

    @classmethod
    def empty(cls, sentences: int, device: torch.device) -> Paths:
        """One path of no tokens for each sentence."""
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
        """Some of each sentence's paths, (B, k')."""
        return Paths(
            self.scores.gather(1, ranks),
            _at(self.tokens, ranks),
            _at(self.log_probabilities, ranks),
            self.parents.gather(1, ranks),
        )

    def of(self, sentences: Tensor | int) -> Paths:
        """The paths of some sentences, or (without the first dimension) of one."""
        return Paths(*(x[sentences] for x in (self.scores, self.tokens, self.log_probabilities, self.parents)))


@dataclass(frozen=True)
class Expansion:
    """What one step looked at, for those who watch: the candidates, and what became of each."""

    sentences: list[int]
    candidates: Paths  # (B, C)
    finished: Tensor  # (B, C): became an output
    kept: Tensor  # (B, C): goes on
    beams: Tensor  # (B, k): the rank of the candidate that each beam goes on with
    length_penalty: float


def length_penalised(log_probability: float, length: int, alpha: float) -> float:
    """log-probability / length^α."""
    return log_probability / math.pow(length, alpha)


class Answers:
    """The best finished outputs of one sentence so far, best first."""

    def __init__(self, best: int, limits: Limits, alpha: float) -> None:
        self.best, self.limits, self.alpha = best, limits, alpha
        self.hypotheses: list[Hypothesis] = []

    def add(self, tokens: list[int], log_probabilities: list[float], log_probability: float) -> None:
        """Compare one more output with those before it."""
        finished = tokens[-1] == self.limits.end
        score = length_penalised(log_probability, len(tokens), self.alpha)
        written = tokens[:-1] if finished else tokens
        insort(
            self.hypotheses,
            Hypothesis(written, score, log_probability, log_probabilities, finished),
            key=lambda hypothesis: -hypothesis.score,
        )
        del self.hypotheses[self.best :]

    def settled(self, log_probability: float, length: int) -> bool:
        """Whether no beam of at most this log-probability and at least this length can still change the answer."""
        if log_probability == -math.inf:
            return True
        reach = self.limits.max_length if self.alpha > 0 else length + 1
        bound = length_penalised(log_probability, reach, self.alpha)
        return len(self.hypotheses) == self.best and self.hypotheses[-1].score >= bound


@torch.inference_mode()
def beam_search(
    model: Generator,
    *inputs: Any,
    limits: Limits,
    width: int = 5,
    best: int = 1,
    length_penalty: float = 1.0,
    prefix: Prefix | None = None,
    watch: Callable[[Expansion], None] | None = None,
) -> list[list[Hypothesis]]:
    """The `best` outputs of each sentence, best first, as found by `width` beams.

    There are fewer where fewer exist. Outputs cut off at `max_length` compete like the others, with `finished=False`.
    `watch` is shown every expansion: pass a `BeamTrees` to keep the whole search tree.
    """
    if width < 1:
        raise ConfigurationError(f"the beam width must be at least 1, not {width}")
    if not -10 <= length_penalty <= 10:
        raise ConfigurationError(f"the length penalty must be a number from -10 to 10, not {length_penalty}")
    if not 1 <= best <= width:
        raise ConfigurationError(f"the number of outputs must be from 1 to the beam width ({width}), not {best}")
    source = first_of(inputs)
    with evaluating(parts_of(model)):
        state = model.start(*inputs)
        answers = [Answers(best, limits, length_penalty) for _ in source]
        score = Scorer(limits, prefix, len(answers))
        sentences = list(range(len(answers)))
        paths = Paths.empty(len(answers), source.device)
        tokens = first_tokens(state, limits.start, len(answers), source.device)
        for length in range(1, limits.max_length + 1):
            logits, state = model.step(state, tokens)
            if width > logits.shape[-1]:
                raise ConfigurationError(f"the beam width {width} is above the vocabulary of {logits.shape[-1]} tokens")
            candidates = paths.extend(score(logits, length - 1, sentences), 2 * width)
            closing = candidates.tokens[:, :, -1] == limits.end
            if length == limits.max_length:
                closing = torch.ones_like(closing)
            finished = closing & candidates.scores.isfinite()
            finished[:, width:] = False
            _finish(candidates, finished, [answers[sentence] for sentence in sentences])
            going = candidates.scores.masked_fill(closing, -torch.inf)
            scores, beams = going.topk(min(width, going.shape[1]), dim=-1)  # (B, k)
            if watch is not None:
                kept = torch.zeros_like(closing).scatter(1, beams, scores.isfinite())
                watch(Expansion(sentences, candidates, finished, kept, beams, length_penalty))
            paths = candidates.select(beams)
            paths.scores = scores  # a path that has ended is no longer one
            highest = scores[:, 0].tolist()
            open_rows = [row for row, s in enumerate(sentences) if not answers[s].settled(highest[row], length)]
            if not open_rows:
                break
            rows = None
            if len(open_rows) < len(sentences):
                rows = torch.tensor(open_rows, device=tokens.device)
                paths, sentences = paths.of(rows), [sentences[row] for row in open_rows]
            state.select(paths.parents, rows)
            tokens = paths.tokens[:, :, -1]  # (B, k)
    for sentence, answer in enumerate(answers):
        if not answer.hypotheses:
            raise InputError(f"the model gives none of the outputs that sentence {sentence} may have a probability")
    return [answer.hypotheses for answer in answers]


def _finish(candidates: Paths, finished: Tensor, answers: list[Answers]) -> None:
    """Hand each finished candidate to its sentence's answers."""
    for row, rank in finished.nonzero().tolist():
        answers[row].add(
            candidates.tokens[row, rank].tolist(),
            candidates.log_probabilities[row, rank].tolist(),
            candidates.scores[row, rank].item(),
        )


def _at(x: Tensor, ranks: Tensor) -> Tensor:
    """Rows of (B, k, t) at ranks (B, k'): (B, k', t)."""
    return x.gather(1, ranks[:, :, None].expand(-1, -1, x.shape[-1]))
