"""Stepwise decoding: greedy and sampling append one token at a time; `stream` yields tokens as they are chosen.

B sentences, V vocabulary, t length so far
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

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
from glassformer.decoding.sampling import Sampler
from glassformer.errors import InputError, NonFiniteError

Choose = Callable[[Tensor, Sequence[int]], Tensor]  # log-probabilities (B, V) of some sentences to tokens (B)


@dataclass(frozen=True)
class Written:
    """One generated token of one sentence; the last token of a finished sentence is the end token."""

    sentence: int
    token: int
    log_probability: float


def most_likely(scores: Tensor, sentences: Sequence[int]) -> Tensor:
    """The greedy choice: the token with the highest score, (B, V) to (B)."""
    return scores.argmax(dim=-1)


@torch.inference_mode()
def stream(
    model: Generator, *inputs: Any, limits: Limits, choose: Choose = most_likely, prefix: Prefix | None = None
) -> Iterator[Written]:
    """Yield each token as soon as it is chosen: in each step, one token of every unfinished sentence.

    `choose` is `most_likely` or a `Sampler`. A finished sentence is removed from the batch.
    """
    source, parts = first_of(inputs), parts_of(model)
    with evaluating(parts):
        state = model.start(*inputs)
    sentences = list(range(len(source)))
    score, ends = Scorer(limits, prefix, inputs, greedily=True), {*limits.ends}
    tokens = first_tokens(state, limits.start, len(sentences), source.device)
    so_far = torch.empty(len(sentences), 1, 0, dtype=torch.long, device=source.device)  # (B, 1, t)
    for _ in range(limits.max_length):
        with evaluating(parts):
            logits, state = model.step(state, tokens)
        scores = score(logits, so_far, sentences)[:, 0]  # (B, V)
        chosen = choose(scores, sentences)  # (B)
        written = chosen.tolist()
        for event in zip(sentences, written, scores.gather(1, chosen[:, None])[:, 0].tolist(), strict=True):
            if math.isnan(event[2]):
                raise NonFiniteError(NOT_FINITE.format(event[0]))
            if not math.isfinite(event[2]):
                raise InputError(f"sentence {event[0]}: every allowed next token has probability 0")
            yield Written(*event)
        unfinished = [row for row, token in enumerate(written) if token not in ends]
        if not unfinished:
            return
        if len(unfinished) < len(sentences):
            rows = torch.tensor(unfinished, device=chosen.device)
            state.select(torch.zeros_like(rows)[:, None], rows)
            chosen, so_far, sentences = chosen[rows], so_far[rows], [sentences[row] for row in unfinished]
        tokens = chosen[:, None]  # (B, 1)
        so_far = torch.cat((so_far, tokens[:, None]), dim=-1)


def greedy(model: Generator, *inputs: Any, limits: Limits, prefix: Prefix | None = None) -> list[Hypothesis]:
    """One output per sentence: the most likely token at each step."""
    return collect(stream(model, *inputs, limits=limits, prefix=prefix), len(first_of(inputs)), limits.ends)


def sample(
    model: Generator,
    *inputs: Any,
    limits: Limits,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    seed: int | Sequence[int] = 0,
    prefix: Prefix | None = None,
) -> list[Hypothesis]:
    """One output per sentence: a token drawn by the model's probabilities at each step.

    `Sampler` explains the options. With one seed per sentence, an output does not depend on the rest of the batch.
    """
    choose = Sampler(temperature, top_k, top_p, min_p, seed)
    events = stream(model, *inputs, limits=limits, choose=choose, prefix=prefix)
    return collect(events, len(first_of(inputs)), limits.ends)


def collect(events: Iterable[Written], sentences: int, ends: Collection[int]) -> list[Hypothesis]:
    """One hypothesis per sentence from the events of `stream`."""
    tokens: list[list[int]] = [[] for _ in range(sentences)]
    scores: list[list[float]] = [[] for _ in range(sentences)]
    for event in events:
        tokens[event.sentence].append(event.token)
        scores[event.sentence].append(event.log_probability)
    outputs = []
    for written, each in zip(tokens, scores, strict=True):
        finished = written[-1] in ends
        outputs.append(Hypothesis(written[:-1] if finished else written, sum(each), sum(each), each, finished))
    return outputs
