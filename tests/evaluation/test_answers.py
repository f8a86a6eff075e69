"""Exact match and F1 as SQuAD defines them: worked examples, and a slow check written another way."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.errors import InputError
from glassformer.evaluation import answer_scores, best_threshold
from glassformer.evaluation.answers import exact_match, normalised, word_f1

words = st.lists(st.sampled_from(["the", "A", "cat,", "Cat", "sat", "on", "mat.", "an", "U.S.", "—", "3"]), max_size=6)


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("The  Cat!", "cat"),
        ("U.S.", "us"),
        ("a theme for an anthem", "theme for anthem"),
        ("the", ""),
        ("“quotes” stay", "“quotes” stay"),  # only ASCII's punctuation goes, as in the original
        ("end-of-line", "endofline"),
    ],
)
def test_what_counts_of_an_answer(text: str, counts: str) -> None:
    assert normalised(text) == counts


@pytest.mark.parametrize(
    ("answer", "references", "exact", "f1"),
    [
        ("the Denver Broncos", ["Denver Broncos"], 1, 1),
        ("Broncos", ["Denver Broncos"], 0, 2 / 3),  # precision 1, recall 1/2
        ("Denver Broncos of 1999", ["Denver Broncos", "Broncos of Denver"], 0, 6 / 7),  # 3 of 4, 3 of 3
        ("cat cat", ["cat sat cat cat"], 0, 2 / 3),  # words count as often as they occur: 2 of 2, 2 of 4
        ("", ["Denver"], 0, 0),
        ("", [""], 1, 1),
        ("Denver", [""], 0, 0),
    ],
)
def test_worked_examples(answer: str, references: list[str], exact: float, f1: float) -> None:
    assert exact_match(answer, references) == exact
    assert word_f1(answer, references) == pytest.approx(f1)


def slowly(answer: str, reference: str) -> float:
    """F1 by striking out one word after the other."""

    def clean(text: str) -> list[str]:
        kept = "".join(letter for letter in text.lower() if not re.match(r"[!-/:-@\[-`{-~]", letter))
        return [word for word in kept.split() if word not in ("a", "an", "the")]

    said, right = clean(answer), clean(reference)
    if not said or not right:
        return float(said == right)
    left, shared = list(right), 0
    for word in said:
        if word in left:
            left.remove(word)
            shared += 1
    if not shared:
        return 0.0
    precision, recall = shared / len(said), shared / len(right)
    return 2 * precision * recall / (precision + recall)


@given(words, st.lists(words, min_size=1, max_size=3))
def test_f1_is_precision_and_recall_of_shared_words(said: list[str], right: list[list[str]]) -> None:
    answer, references = " ".join(said), [" ".join(each) for each in right]
    assert word_f1(answer, references) == pytest.approx(max(slowly(answer, each) for each in references))


def test_questions_without_an_answer_are_counted_by_themselves() -> None:
    found = answer_scores(["Paris", "", "Rome", "x"], [["Paris", "paris, France"], [], ["the"], ["y"]])
    assert (found.answerable, found.unanswerable) == (2, 2)
    assert (found.exact, found.f1) == (0.5, 0.5)
    assert (found.answerable_exact, found.answerable_f1, found.unanswerable_exact) == (0.5, 0.5, 0.5)
    assert answer_scores(["a"], [["b"]]).unanswerable_exact is None


def scored(threshold: float, margins: list[float], answers: list[str], references: list[list[str]]) -> float:
    said = ["" if margin > threshold else answer for margin, answer in zip(margins, answers, strict=True)]
    return answer_scores(said, references).f1


@given(
    st.lists(
        st.tuples(st.integers(-3, 3), st.sampled_from(["cat", "the cat sat", ""]), st.sampled_from(["cat", ""])),
        min_size=1,
        max_size=12,
    )
)
def test_no_threshold_is_better_than_the_best(drawn: list[tuple[int, str, str]]) -> None:
    margins, answers = [float(margin) for margin, _, _ in drawn], [answer for _, answer, _ in drawn]
    references = [[right] if right else [] for _, _, right in drawn]
    found = scored(best_threshold(margins, answers, references), margins, answers, references)
    tried = [scored(each / 2, margins, answers, references) for each in range(-9, 10)]
    assert found == pytest.approx(max(tried))


def test_the_best_threshold_lies_between_the_questions_that_it_tells_apart() -> None:
    assert best_threshold([-3.0, 1.0, 2.0], ["a b", "c", "d"], [["b"], ["c"], []]) == 1.5
    assert best_threshold([-3.0, 1.0], ["x", "y"], [[], []]) == -4.0  # silence for all
    assert best_threshold([-3.0, 1.0], ["x", "y"], [["x"], ["y"]]) == 2.0  # words for all


def test_nothing_is_no_score() -> None:
    with pytest.raises(InputError, match="nothing to score"):
        answer_scores([], [])
    with pytest.raises(InputError, match="1 answers but 2 lists"):
        answer_scores(["a"], [[], []])
