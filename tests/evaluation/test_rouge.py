"""ROUGE: worked by hand, and what its library counts."""

import pytest

from glassformer.errors import InputError
from glassformer.evaluation import rouge


def test_a_worked_example() -> None:
    # 3 of 4 words and 3 of 3 are shared; 1 of 3 pairs and 1 of 2; in order: "the cat", 2 of 4 and 2 of 3.
    found = rouge(["sat the cat"], ["the cat has sat"])
    assert found.rouge1 == pytest.approx(100 * 6 / 7)
    assert found.rouge2 == pytest.approx(100 * 2 / 5)
    assert found.rougeL == pytest.approx(100 * 4 / 7)


def test_the_mean_is_over_all() -> None:
    assert rouge(["one two", "x"], ["one two", "y"]).rouge1 == pytest.approx(50)


def test_letters_beyond_english_do_not_count() -> None:
    assert rouge(["東京"], ["東京"]).rouge1 == 0


def test_nothing_is_no_score() -> None:
    with pytest.raises(InputError, match="nothing to score"):
        rouge([], [])
    with pytest.raises(InputError, match="1 outputs but 2 references"):
        rouge(["a"], ["a", "b"])
