"""Stepwise decoding: greedy and sampling append one token at a time; `stream` yields tokens as they are chosen.

B sentences, V vocabulary, t length so far, H length of the longest history
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from glassformer.decoding.capturing import store_for
from glassformer.decoding.limits import Limits, Prefix, Scorer
from glassformer.decoding.loop import Job, Rows, decode
from glassformer.decoding.protocol import (
    NOT_FINITE,
    Generator,
    Hypothesis,
    first_of,
    first_tokens,
    parts_of,
)
from glassformer.decoding.sampling import Sampler
from glassformer.decoding.starting import start
from glassformer.decoding.tables import Tables, empty_history
from glassformer.errors import InputError, NonFiniteError

Choose = Callable[[Tensor, Sequence[int]], Tensor]  # log-probabilities (B, V) of some sentences to tokens (B)
EVERY = 8  # captured steps before the host reads their tokens, where nobody waits for each


@dataclass(frozen=True)
class Written:
    """One generated token of one sentence; the last token of a finished sentence is the end token."""

    sentence: int
    token: int
    log_probability: float


def most_likely(scores: Tensor, sentences: Sequence[int]) -> Tensor:
    """The greedy choice: the token with the highest score, (B, V) to (B)."""
    return scores.argmax(dim=-1)


@dataclass
class Line(Tables):
    """Stepwise decoding in tensors: one line of tokens for each sentence."""

    axes: ClassVar[Mapping[str, int | None]] = {
        **dict.fromkeys(("step", "bounds"), None),
        **dict.fromkeys(("tokens", "done", "history"), 0),
        **dict.fromkeys(("written", "scores", "draws"), 1),
    }
    steps: ClassVar[tuple[str, ...]] = ("written", "scores", "draws")

    scorer: Scorer
    choose: Choose
    sentences: list[int]
    step: Tensor  # (1): how many steps were taken
    bounds: Tensor  # (2): the least and the most tokens
    tokens: Tensor  # (B, 1): what the model reads next
    done: Tensor  # (B)
    written: Tensor  # (t, B): the tokens
    scores: Tensor  # (t, B): their log-probabilities
    draws: Tensor  # (t, B): the random numbers that draw them, if a captured step draws
    history: Tensor  # (B, 1, H): what rules that look back read, the latest last
    captured: bool = False

    @classmethod
    def begin(cls, scorer: Scorer, choose: Choose, tokens: Tensor, history: Tensor, steps: int = 0) -> Line:
        """Before the first step, which reads tokens (B, 1)."""
        rows, device, limits = len(tokens), tokens.device, scorer.limits
        table = torch.zeros(steps, rows, device=device)
        return cls(
            scorer=scorer,
            choose=choose,
            sentences=list(range(rows)),
            step=torch.zeros(1, dtype=torch.long, device=device),
            bounds=torch.tensor([limits.min_length, limits.max_length]).to(device),
            tokens=tokens,
            done=torch.zeros(rows, dtype=torch.bool, device=device),
            written=table.long(),
            scores=table,
            draws=table if device.type == "mps" else table.double(),
            history=history,
        )

    def check(self, vocabulary: int) -> None:
        """Refuse what this vocabulary does not allow."""
        self.scorer.check(vocabulary)

    def advance(self, logits: Tensor) -> tuple[Line, None]:
        """One more token for each sentence, given the logits (B, 1, V)."""
        scores = self._scored(logits)[:, 0]  # (B, V)
        chosen = self._chosen(scores)  # (B)
        self.written.index_copy_(0, self.step, chosen[None])
        self.scores.index_copy_(0, self.step, scores.gather(1, chosen[:, None]).view(1, -1))
        done = self.done | self.scorer.ending(chosen) | (self.step == self.bounds[1] - 1)
        past = self.history
        if past.shape[-1]:
            past = torch.cat((past[..., 1:], chosen[:, None, None]), dim=-1)
        return replace(self, step=self.step + 1, tokens=chosen[:, None], done=done, history=past), None

    def _scored(self, logits: Tensor) -> Tensor:
        """Log-probabilities (B, 1, V) of what may come next."""
        if self.scorer.prefix is None:
            return self.scorer.at(logits, self.step, self.bounds, self.history)
        so_far = self.written[: int(self.step)].T[:, None]  # (B, 1, t)
        return self.scorer(logits, so_far, self.sentences)

    def _chosen(self, scores: Tensor) -> Tensor:
        if self.captured and isinstance(self.choose, Sampler):
            return self.choose.pick(scores, self.draws.index_select(0, self.step)[0])
        return self.choose(scores, self.sentences)

    @property
    def key(self) -> tuple[Any, ...] | None:
        """What captured steps depend on; None: a step needs the host."""
        if self.scorer.prefix is not None or not (self.choose is most_likely or isinstance(self.choose, Sampler)):
            return None
        return "line", self.choose.key if isinstance(self.choose, Sampler) else None, self.scorer.key

    def empty(self, sentences: int, steps: int) -> Line:
        """The same for so many sentences and steps, to be captured."""
        tokens = torch.zeros(sentences, 1, dtype=torch.long, device=self.tokens.device)
        history = empty_history(self, tokens, steps)
        return replace(Line.begin(self.scorer, self.choose, tokens, history, steps), captured=True)

    def keep(self, rows: Tensor, sentences: list[int]) -> Line:
        return replace(super().keep(rows, sentences), captured=False)

    def load(self, other: Line) -> None:
        self.scorer, self.choose = other.scorer, other.choose
        if len(other.done) < len(self.done):
            self.done.fill_(True)
        super().load(other)

    def prepare(self, rows: Rows, length: int, steps: int) -> None:
        """Copy the random numbers of the next steps."""
        sampler = self.choose
        if self.captured and isinstance(sampler, Sampler):
            numbers = torch.zeros(steps, self.draws.shape[1], dtype=self.draws.dtype)
            for row, sentence in rows:
                numbers[:, row] = torch.tensor(sampler.ahead(sentence, steps), dtype=numbers.dtype)
            self.draws[length : length + steps].copy_(numbers)


@torch.inference_mode()
def stream(
    model: Generator, *inputs: Any, limits: Limits, choose: Choose = most_likely, prefix: Prefix | None = None
) -> Iterator[Written]:
    """Yield each token as soon as it is chosen: in each step, one token of every unfinished sentence.

    `choose` is `most_likely` or a `Sampler`. A finished sentence is removed from the batch.
    """
    yield from _written(model, inputs, limits, choose, prefix, 1)


def _written(
    model: Generator, inputs: tuple[Any, ...], limits: Limits, choose: Choose, prefix: Prefix | None, every: int
) -> Iterator[Written]:
    """The tokens of each step, which may come a few steps at a time."""
    source, parts, ends = first_of(inputs), parts_of(model), {*limits.ends}
    store = store_for(model, parts, source.device)
    state = start(model, parts, inputs, store)
    scorer = Scorer(limits, prefix, inputs, greedily=True)
    events: list[Written] = []
    seen = 0

    def read(search: Line, rows: Rows, length: int) -> Rows:
        """Take the new tokens."""
        nonlocal seen
        tokens, scores = (x[seen:length].tolist() for x in (search.written, search.scores))
        for step in range(length - seen):
            events.extend(Written(sentence, tokens[step][row], scores[step][row]) for row, sentence in rows)
            if search.captured and isinstance(choose, Sampler):
                for _, sentence in rows:
                    choose.used(sentence)
            rows = [(row, sentence) for row, sentence in rows if tokens[step][row] not in ends]
        seen = length
        return rows

    first = first_tokens(state, limits.start, len(source), source.device)  # (B, 1)
    search = Line.begin(scorer, choose, first, scorer.history(0))
    decoding = decode(Job(model, parts, limits.max_length, every, store), state, search, read)
    for _ in decoding:
        for event in events:
            if math.isnan(event.log_probability):
                decoding.throw(NonFiniteError(NOT_FINITE.format(event.sentence)))
            if not math.isfinite(event.log_probability):
                decoding.throw(InputError(f"sentence {event.sentence}: every allowed next token has probability 0"))
            yield event
        events.clear()


@torch.inference_mode()
def complete(
    model: Generator, *inputs: Any, limits: Limits, choose: Choose = most_likely, prefix: Prefix | None = None
) -> list[Hypothesis]:
    """One output per sentence, as `stream` writes it; on a GPU faster, because nobody waits for each token."""
    events = _written(model, inputs, limits, choose, prefix, EVERY)
    return collect(events, len(first_of(inputs)), limits.ends)


def greedy(model: Generator, *inputs: Any, limits: Limits, prefix: Prefix | None = None) -> list[Hypothesis]:
    """One output per sentence: the most likely token at each step."""
    return complete(model, *inputs, limits=limits, prefix=prefix)


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
    return complete(model, *inputs, limits=limits, choose=choose, prefix=prefix)


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
