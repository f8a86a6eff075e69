"""Windows: a question beside as much of a long context as fits, again and again, each stretch sharing some of the last.

    <start> question <end> context[0:6] <end>
    <start> question <end> context[4:10] <end>        (room 6, stride 2)

W tokens of a context
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from glassformer.data.encoding import Rows
from glassformer.data.files import BETWEEN
from glassformer.errors import ConfigurationError
from glassformer.text import Tokenizer

Span = tuple[int, int]  # from, to: of characters
ABSENT = (0, 0)  # where an answer points that is not in its window: to the start token


@dataclass(frozen=True)
class Window:
    """A question and a stretch of its context, whose tokens `left`, left + 1, … stand at the places `first`, …."""

    tokens: list[int]
    first: int
    left: int
    spans: list[Span]  # (W), where each token of the stretch stands in the context

    def characters(self, first: int, last: int) -> Span:
        """The stretch of the context from the token at place `first` to that at `last`."""
        return self.spans[first - self.first][0], self.spans[last - self.first][1]


@dataclass(frozen=True)
class Windows:
    """Makes windows of at most `limit` tokens, neighbours sharing `stride` tokens of the context."""

    tokenizer: Tokenizer
    limit: int
    stride: int
    question: int  # tokens of a question at most; what is longer is cut off

    def __call__(self, pairs: Sequence[tuple[str, str]]) -> list[list[Window]]:
        """The windows of each question and context, in their order."""
        before, between, after = self.tokenizer.around(2)
        if not before:
            raise ConfigurationError("this tokenizer begins texts with no special token: nothing can say 'no answer'")
        questions = [ids[: self.question] for ids, _ in self.tokenizer.spelled([question for question, _ in pairs])]
        contexts = self.tokenizer.spelled([context for _, context in pairs])
        found = []
        for question, (ids, spans) in zip(questions, contexts, strict=True):
            head = [*before, *question, *between]
            room = self.limit - len(head) - len(after)
            found.append(
                [
                    Window([*head, *ids[left:right], *after], len(head), left, spans[left:right])
                    for left, right in stretches(len(ids), room, self.stride)
                ]
            )
        return found


def stretches(count: int, room: int, stride: int) -> list[Span]:
    """The stretches of `count` tokens, each `room` long, that share `stride` tokens with the next."""
    if room <= stride:
        raise ConfigurationError(
            f"a window has room for {room} tokens of the context, which is not more than task.stride, {stride}: "
            "raise data.max_tokens, or lower task.stride or task.max_question"
        )
    last = max(0, count - room)
    firsts = [*range(0, last, room - stride), last]
    return [(first, min(first + room, count)) for first in firsts]


def places(windows: Sequence[Window], answer: Span) -> list[tuple[int, int]]:
    """The answer's first and last token in each window of a context; where it is not all there, the start token."""
    start, end = answer
    numbered = [each for window in windows for each in enumerate(window.spans, window.left)]
    inside = [number for number, (left, right) in numbered if left < end and right > start]
    if not inside:
        return [ABSENT] * len(windows)
    first, last = min(inside), max(inside)
    return [
        (window.first + first - window.left, window.first + last - window.left)
        if window.left <= first and last < window.left + len(window.spans)
        else ABSENT
        for window in windows
    ]


@dataclass(frozen=True)
class AnswerEncoder:
    """One row a window: what is read, then the first and the last token of the answer. The first answer counts."""

    windows: Windows
    unanswerable: bool

    def __call__(self, sources: list[str], targets: list[str]) -> Rows:
        """The rows of those questions that may be learned from."""
        counts: Counter[str] = Counter()
        rows, lengths = list[int](), list[tuple[int, int]]()
        answers = [json.loads(target) for target in targets]
        for found, given in zip(self.windows([split(source) for source in sources]), answers, strict=True):
            if not given and not self.unanswerable:
                counts["unanswerable"] += 1
                continue
            where = places(found, span_of(given[0])) if given else [ABSENT] * len(found)
            if given and set(where) == {ABSENT}:
                counts["apart"] += 1
                continue
            for window, place in zip(found, where, strict=True):
                rows += [*window.tokens, *place]
                lengths.append((len(window.tokens), len(place)))
        return Rows(np.array(rows, np.uint32), np.array(lengths, np.int64).reshape(-1, 2), counts)


def split(source: str) -> tuple[str, str]:
    """The question and the context of an example."""
    question, _, context = source.partition(BETWEEN)
    return question, context


def span_of(answer: dict[str, str | int]) -> Span:
    """Where an answer stands in its context."""
    start = int(answer["start"])
    return start, start + len(str(answer["text"]))
