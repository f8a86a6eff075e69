"""Append the predicted word and go on: greedy decoding, sampling, and their tokens as they come.

B sentences, V vocabulary
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from glassformer.decoding.limits import Limits, Prefix, Scorer
from glassformer.decoding.protocol import Generator, Hypothesis, evaluating, first_of, first_tokens, parts_of
from glassformer.decoding.sampling import Sampler
from glassformer.errors import InputError

Choose = Callable[[Tensor, Sequence[int]], Tensor]  # log-probabilities (B, V) of some sentences to tokens (B)


@dataclass(frozen=True)
class Written:
    """One token of one sentence, as it is written; the last one of a finished sentence is the end token."""

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
    """Yield each token as soon as it is chosen, sentence after sentence, step after step.

    `choose` is `most_likely` or a `Sampler`. A sentence that reaches its end leaves the batch.
    """
    source, parts = first_of(inputs), parts_of(model)
    with evaluating(parts):
        state = model.start(*inputs)
    sentences = list(range(len(source)))
    score = Scorer(limits, prefix, len(sentences))
    tokens = first_tokens(state, limits.start, len(sentences), source.device)
    for length in range(limits.max_length):
        with evaluating(parts):
            logits, state = model.step(state, tokens)
        scores = score(logits, length, sentences)[:, 0]  # (B, V)
        chosen = choose(scores, sentences)  # (B)
        written = chosen.tolist()
        for event in zip(sentences, written, scores.gather(1, chosen[:, None])[:, 0].tolist(), strict=True):
            if not math.isfinite(event[2]):
                raise InputError(f"the model gives no token that may follow in sentence {event[0]} a probability")
            yield Written(*event)
        going = [row for row, token in enumerate(written) if token != limits.end]
        if not going:
            return
        if len(going) < len(sentences):
            rows = torch.tensor(going, device=chosen.device)
            state.select(torch.zeros_like(rows)[:, None], rows)
            chosen, sentences = chosen[rows], [sentences[row] for row in going]
        tokens = chosen[:, None]  # (B, 1)


def greedy(model: Generator, *inputs: Any, limits: Limits, prefix: Prefix | None = None) -> list[Hypothesis]:
    """The most likely token at each step: one output a sentence."""
    return collect(stream(model, *inputs, limits=limits, prefix=prefix), len(first_of(inputs)), limits.end)


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
    """A token drawn at random at each step, by the model's probabilities: one output a sentence.

    `Sampler` says what the options mean. One seed a sentence gives each the same output in
    any company.
    """
    choose = Sampler(temperature, top_k, top_p, min_p, seed)
    events = stream(model, *inputs, limits=limits, choose=choose, prefix=prefix)
    return collect(events, len(first_of(inputs)), limits.end)


def collect(events: Iterable[Written], sentences: int, end: int) -> list[Hypothesis]:
    """The stream's events, as one hypothesis a sentence."""
    tokens: list[list[int]] = [[] for _ in range(sentences)]
    scores: list[list[float]] = [[] for _ in range(sentences)]
    for event in events:
        tokens[event.sentence].append(event.token)
        scores[event.sentence].append(event.log_probability)
    outputs = []
    for written, each in zip(tokens, scores, strict=True):
        finished = written[-1] == end
        outputs.append(Hypothesis(written[:-1] if finished else written, sum(each), sum(each), each, finished))
    return outputs
