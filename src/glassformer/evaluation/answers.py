"""Scores of answers as SQuAD defines them: exact match, and F1 over the words that answer and reference share.

Case, punctuation, articles and white space are ignored. With several references, the best score is taken. A question
without an answer has the reference "": only the empty answer is correct.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from glassformer.errors import InputError
from glassformer.evaluation.bootstrap import Statistic, ratio

ARTICLES = re.compile(r"\b(a|an|the)\b")
NO_ANSWER = [""]  # the references of a question without an answer
NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


@dataclass(frozen=True)
class AnswerScores:
    """Scores from 0 to 1: of all questions, of those with an answer, and of those without (None if there are none)."""

    exact: float
    f1: float
    answerable: int
    answerable_exact: float | None
    answerable_f1: float | None
    unanswerable: int
    unanswerable_exact: float | None  # the fraction with an empty answer


def normalised(text: str) -> str:
    """The words of an answer in lower case, without punctuation and articles, with single spaces."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(NO_PUNCTUATION)).split())


def exact_match(answer: str, references: Sequence[str]) -> float:
    """1 if the answer equals one of the references after normalisation, else 0."""
    return float(any(normalised(answer) == normalised(each) for each in references))


def word_f1(answer: str, references: Sequence[str]) -> float:
    """The F1 of the words of the answer, with the reference that gives the highest."""
    return max(_f1(normalised(answer).split(), normalised(each).split()) for each in references)


def _f1(answer: list[str], reference: list[str]) -> float:
    if not answer or not reference:
        return float(answer == reference)
    common = (Counter(answer) & Counter(reference)).total()
    return 2 * common / (len(answer) + len(reference))


def answer_scores(answers: Sequence[str], references: Sequence[Sequence[str]]) -> AnswerScores:
    """Compare answers with the references of their questions; a question without references has no answer."""
    exact, f1, answerable = scores_of_each(answers, references)
    return AnswerScores(
        exact=sum(exact) / len(exact),
        f1=sum(f1) / len(f1),
        answerable=sum(answerable),
        answerable_exact=_mean(exact, answerable),
        answerable_f1=_mean(f1, answerable),
        unanswerable=len(answerable) - sum(answerable),
        unanswerable_exact=_mean(exact, [not each for each in answerable]),
    )


def scores_of_each(
    answers: Sequence[str], references: Sequence[Sequence[str]]
) -> tuple[list[float], list[float], list[bool]]:
    """The exact match and the F1 of each answer, and whether its question has an answer."""
    if len(answers) != len(references):
        raise InputError(f"there are {len(answers)} answers but {len(references)} lists of references")
    if not answers:
        raise InputError("there is nothing to score: no answers and no references")
    kept = _non_empty(references)
    exact = [exact_match(answer, some) for answer, some in zip(answers, kept, strict=True)]
    f1 = [word_f1(answer, some) for answer, some in zip(answers, kept, strict=True)]
    return exact, f1, [some != NO_ANSWER for some in kept]


def answer_statistics(answers: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, Statistic]:
    """The same scores of samples of the questions; those without an answer count for some of them only."""
    exact, f1, answerable = scores_of_each(answers, references)
    with_answer, without = [float(each) for each in answerable], [float(not each) for each in answerable]
    found = {"exact": ratio(exact), "f1": ratio(f1)}
    if all(map(any, (with_answer, without))):
        found["answerable_exact"] = ratio(np.multiply(exact, with_answer).tolist(), with_answer)
        found["answerable_f1"] = ratio(np.multiply(f1, with_answer).tolist(), with_answer)
        found["unanswerable_exact"] = ratio(np.multiply(exact, without).tolist(), without)
    return found


def _non_empty(references: Sequence[Sequence[str]]) -> list[list[str]]:
    """The references of each question that are not empty after normalisation; NO_ANSWER if there are none."""
    return [[each for each in some if normalised(each)] or NO_ANSWER for some in references]


def best_threshold(margins: Sequence[float], answers: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """The threshold with the best F1, as in SQuAD 2: halfway between the two margins around it.

    A question's margin is the score of "no answer" minus the score of its answer; it is answered if the margin is not
    above the threshold. Compared with no answer, this gains the F1 of the answer if the question has one, and loses 1
    if it has none.
    """
    if not answers:
        raise InputError("there are no questions to choose a threshold with")
    gain_of = [
        -1.0 if some == NO_ANSWER and normalised(answer) else 0.0 if some == NO_ANSWER else word_f1(answer, some)
        for answer, some in zip(answers, _non_empty(references), strict=True)
    ]
    gains = sorted(zip(margins, gain_of, strict=True))
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
