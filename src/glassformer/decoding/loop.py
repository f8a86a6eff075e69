"""The loop of decoding: read one more token, let a search decide how to go on, and repeat until all sentences are done.

A search holds all that it knows in tensors with a row for each sentence, so that a step needs nothing from the host:
greedy decoding, sampling and beam search are such searches. The host looks at the tensors only to see which sentences
are done, after each step on a CPU, and after a few steps where steps are captured (`capturing`).

B sentences, k beams, V vocabulary
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Generator as Generating
from dataclasses import dataclass
from typing import Any, Protocol, Self

import torch
from torch import Tensor, nn

from glassformer.decoding.protocol import Generator, evaluating

Rows = list[tuple[int, int]]  # rows of a search, and the sentences that they are of


class Search(Protocol):
    """What decides how to go on, and keeps what it has decided."""

    tokens: Tensor  # (B, k): the tokens that the model reads next
    sentences: list[int]

    @property
    def key(self) -> tuple[Any, ...] | None:
        """What its steps depend on apart from its tensors; None: on something that only the host has."""
        ...

    def check(self, vocabulary: int) -> None:
        """Refuse what this vocabulary does not allow."""
        ...

    def advance(self, logits: Tensor) -> tuple[Self, Tensor | None]:
        """The search after one more step, and which beams (B, k) the next ones continue; None: they stay in order."""
        ...

    def keep(self, rows: Tensor, sentences: list[int]) -> Self:
        """The search of some sentences."""
        ...

    def reserve(self, steps: int) -> Self:
        """The same with room for so many steps."""
        ...

    def empty(self, sentences: int, steps: int) -> Self:
        """A search by the same rules for so many sentences and steps, which has all its beams already."""
        ...

    def load(self, other: Self) -> None:
        """Take over another search, of as many sentences or fewer; the rows that are left are done."""
        ...

    def prepare(self, rows: Rows, length: int, steps: int) -> None:
        """Before some captured steps: copy what they need from the host."""
        ...


SomeSearch = Any  # a Search; protocols that return themselves cannot be parameters


class Runner(Protocol):
    """Whoever takes the steps."""

    search: SomeSearch
    rows: Rows

    def ahead(self, length: int) -> int:
        """How many steps to take before the host looks, when `length` tokens are written."""
        ...

    def step(self) -> None:
        """Read a token for each beam, and let the search go on."""
        ...

    def keep(self, rows: Rows, length: int) -> Runner:
        """Go on with these sentences."""
        ...

    def close(self, sound: bool) -> None:
        """Nothing will be read any more; it is not sound if there was an error."""
        ...


@dataclass
class Job:
    """What is decoded: the model and its parts, the most tokens, and the most steps before the host looks."""

    model: Generator
    parts: list[nn.Module]
    most: int
    every: int = 1
    store: Any = None  # where captured steps are kept; None: nothing is captured


Read = Callable[[SomeSearch, Rows, int], Rows]  # what the host looks at; it returns the rows that are not done


def decode(job: Job, state: Any, search: SomeSearch, read: Read) -> Generating[None, None, None]:
    """Decode, and stop after each few steps, when `read` has looked at the search."""
    from glassformer.decoding.capturing import captured  # which builds upon this module

    rows: Rows = [(row, sentence) for row, sentence in enumerate(search.sentences)]
    runner: Runner = captured(job, state, search, rows, 0) or Eager(job, state, search, rows)
    length, sound = 0, False
    try:
        while rows and length < job.most:
            steps = min(runner.ahead(length), job.most - length)
            runner.search.prepare(rows, length, steps)
            with evaluating(job.parts):
                for _ in range(steps):
                    runner.step()
            length += steps
            rows = read(runner.search, rows, length)
            yield
            if rows and length < job.most:
                runner = runner.keep(rows, length)
                rows = runner.rows
        sound = True
    except GeneratorExit:
        sound = True
        raise
    finally:
        runner.close(sound)


class Eager(Runner):
    """Takes one step after the other, in whatever memory the model's own state has."""

    def __init__(self, job: Job, state: Any, search: SomeSearch, rows: Rows) -> None:
        self.job, self.state, self.search, self.rows = job, state, search, rows
        self.beams: Tensor | None = None  # (B, k): which beams those of the next step continue
        self._written = 0

    def ahead(self, length: int) -> int:
        self._written = length
        return 1

    def step(self) -> None:
        self.search = self.search.reserve(self._written + 1)
        logits, self.state = self.job.model.step(self.state, self.search.tokens)
        self.search.check(logits.shape[-1])
        self.search, self.beams = self.search.advance(logits)

    def keep(self, rows: Rows, length: int) -> Runner:
        chosen = None
        if len(rows) < len(self.rows):
            device = self.search.tokens.device
            chosen = torch.tensor([row for row, _ in rows], device=device)
            self.rows = [(row, sentence) for row, (_, sentence) in enumerate(rows)]
            self.search = self.search.keep(chosen, [sentence for _, sentence in rows])
            same = torch.zeros(len(rows), 1, dtype=torch.long, device=device)
            self.beams = same if self.beams is None else self.beams[chosen]
        if self.beams is not None:
            self.state.select(self.beams, chosen)
        self.beams = None
        return self

    def close(self, sound: bool) -> None:
        pass
