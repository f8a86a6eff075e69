"""Windows: a question beside as much of a long context as fits, several times, each part overlapping with the last.

    <start> question <end> context[0:6] <end>
    <start> question <end> context[4:10] <end>        (room 6, stride 2)

W tokens of a context
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from glassformer.data.examples import AnswerSpan
from glassformer.errors import ConfigurationError
from glassformer.text import Tokenizer

Span = tuple[int, int]  # from, to: of characters
ABSENT = (0, 0)  # where an answer points that is not in its window: at the start token


@dataclass(frozen=True)
class Window:
    """A question and a part of its context, whose tokens `left`, left + 1, … are at the positions `first`, …."""

    tokens: list[int]
    first: int
    left: int
    spans: list[Span]  # (W), where each token of the part stands in the context

    def characters(self, first: int, last: int) -> Span:
        """The characters of the context from the token at position `first` to that at `last`."""
        return self.spans[first - self.first][0], self.spans[last - self.first][1]


def windows_of(
    pairs: Sequence[tuple[str, str]], tokenizer: Tokenizer, limit: int, stride: int, most: int
) -> list[list[Window]]:
    """The windows of each question and context, in their order: at most `limit` tokens, `most` of a question.

    Neighbours share `stride` tokens of the context.
    """
    before, between, after = tokenizer.around(2)
    if not before:
        raise ConfigurationError("this tokenizer begins texts with no special token: nothing can say 'no answer'")
    questions = [ids[:most] for ids, _ in tokenizer.spelled([question for question, _ in pairs])]
    contexts = tokenizer.spelled([context for _, context in pairs])
    found = []
    for question, (ids, spans) in zip(questions, contexts, strict=True):
        head = [*before, *question, *between]
        parts = overlapping(len(ids), limit - len(head) - len(after), stride)
        found.append([Window([*head, *ids[left:end], *after], len(head), left, spans[left:end]) for left, end in parts])
    return found


def overlapping(count: int, room: int, stride: int) -> list[Span]:
    """The parts of `count` tokens, each `room` long, that share `stride` tokens with the next."""
    if room <= stride:
        raise ConfigurationError(
            f"a window has room for {room} tokens of the context, which is not more than task.stride, {stride}: "
            "raise data.max_tokens, or lower task.stride or task.max_question"
        )
    last = max(0, count - room)
    firsts = [*range(0, last, room - stride), last]
    return [(first, min(first + room, count)) for first in firsts]


def positions(windows: Sequence[Window], answers: Sequence[AnswerSpan]) -> list[tuple[int, int]]:
    """The first answer's first and last token in each window; of one that is not all there, the start token."""
    inside: list[int] = []
    for text, start in answers[:1]:
        numbered = [each for window in windows for each in enumerate(window.spans, window.left)]
        inside = [number for number, (left, right) in numbered if left < start + len(text) and right > start]
    if not inside:
        return [ABSENT] * len(windows)
    first, last = min(inside), max(inside)
    return [
        (window.first + first - window.left, window.first + last - window.left)
        if window.left <= first and last < window.left + len(window.spans)
        else ABSENT
        for window in windows
    ]
