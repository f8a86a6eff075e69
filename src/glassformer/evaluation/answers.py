"""Scores of answers as SQuAD defines them: exact match, and F1 over the words that answer and reference share.

Capitals, punctuation, articles and spaces do not count. Of several references the nearest does. A question without
an answer has the reference "": it is right to say nothing, and nothing else.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from glassformer.errors import InputError

ARTICLES = re.compile(r"\b(a|an|the)\b")
NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


@dataclass(frozen=True)
class AnswerScores:
    """How good answers are, from 0 to 1: of all questions, and of those with and without an answer, where there are."""

    exact: float
    f1: float
    answerable: int
    answerable_exact: float | None
    answerable_f1: float | None
    unanswerable: int
    unanswerable_exact: float | None  # how often nothing was said where there was nothing to say


def normalised(text: str) -> str:
    """What counts of an answer: its words in lower case, without punctuation and articles, single spaces."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(NO_PUNCTUATION)).split())


def exact_match(answer: str, references: Sequence[str]) -> float:
    """1 if the answer is one of the references, as far as counts, else 0."""
    return float(any(normalised(answer) == normalised(each) for each in references))


def word_f1(answer: str, references: Sequence[str]) -> float:
    """The F1 of the words that are in the answer and in the reference nearest to it."""
    return max(_f1(normalised(answer).split(), normalised(each).split()) for each in references)


def _f1(said: list[str], right: list[str]) -> float:
    if not said or not right:
        return float(said == right)
    shared = (Counter(said) & Counter(right)).total()
    return 2 * shared / (len(said) + len(right))


def answer_scores(answers: Sequence[str], references: Sequence[Sequence[str]]) -> AnswerScores:
    """Compare answers with the references of their questions; a question with none has no answer."""
    if len(answers) != len(references):
        raise InputError(f"there are {len(answers)} answers but {len(references)} lists of references")
    if not answers:
        raise InputError("there is nothing to score: no answer and no reference")
    kept = [[each for each in some if normalised(each)] or [""] for some in references]
    exact = [exact_match(answer, some) for answer, some in zip(answers, kept, strict=True)]
    f1 = [word_f1(answer, some) for answer, some in zip(answers, kept, strict=True)]
    there = [some != [""] for some in kept]
    return AnswerScores(
        exact=sum(exact) / len(exact),
        f1=sum(f1) / len(f1),
        answerable=sum(there),
        answerable_exact=_mean(exact, there),
        answerable_f1=_mean(f1, there),
        unanswerable=len(there) - sum(there),
        unanswerable_exact=_mean(exact, [not each for each in there]),
    )


def _mean(values: list[float], wanted: list[bool]) -> float | None:
    some = [value for value, each in zip(values, wanted, strict=True) if each]
    return sum(some) / len(some) if some else None
