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
NOTHING = [""]  # what is right where there is no answer
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
    kept = _counted(references)
    exact = [exact_match(answer, some) for answer, some in zip(answers, kept, strict=True)]
    f1 = [word_f1(answer, some) for answer, some in zip(answers, kept, strict=True)]
    there = [some != NOTHING for some in kept]
    return AnswerScores(
        exact=sum(exact) / len(exact),
        f1=sum(f1) / len(f1),
        answerable=sum(there),
        answerable_exact=_mean(exact, there),
        answerable_f1=_mean(f1, there),
        unanswerable=len(there) - sum(there),
        unanswerable_exact=_mean(exact, [not each for each in there]),
    )


def _counted(references: Sequence[Sequence[str]]) -> list[list[str]]:
    """The references of each question that have something to compare with."""
    return [[each for each in some if normalised(each)] or NOTHING for some in references]


def best_threshold(margins: Sequence[float], answers: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """The threshold of the best F1, as SQuAD 2 looks for it: halfway between the two margins around it.

    A question is answered where its margin, by how much silence is likelier than these words, is not over the
    threshold. Against silence, that gains the words' F1 where there is an answer, and costs 1 where there is none.
    """
    if not answers:
        raise InputError("there is no question to find a threshold with")
    worth = [
        -1.0 if some == NOTHING and normalised(answer) else 0.0 if some == NOTHING else word_f1(answer, some)
        for answer, some in zip(answers, _counted(references), strict=True)
    ]
    gains = sorted(zip(margins, worth, strict=True))
    best, threshold, total = 0.0, gains[0][0] - 1, 0.0
    for number, (margin, gain) in enumerate(gains):
        following = gains[number + 1][0] if number + 1 < len(gains) else margin + 2
        total += gain
        if total > best and following > margin:
            best, threshold = total, (margin + following) / 2
    return threshold


def _mean(values: list[float], wanted: list[bool]) -> float | None:
    some = [value for value, each in zip(values, wanted, strict=True) if each]
    return sum(some) / len(some) if some else None
