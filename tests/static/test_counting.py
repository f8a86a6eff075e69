"""Counting: scikit-learn's vectors, and formulas by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.errors import InputError
from glassformer.static import TfIdf, Vocabulary, bag_of_words, one_hot, words_of

TEXTS = ["the cat sat on the mat", "The dog sat", "a cat, a dog; a दिल्ली!", "?!", "mat mat mat mat"]


def test_words_are_those_of_the_word_tokenizer() -> None:
    assert words_of("The King's 2 दिल्ली-cats, don_t!") == ["the", "king", "s", "2", "दिल्ली", "cats", "don_t"]
    assert words_of("The King", lowercase=False) == ["The", "King"]
    assert words_of(" ?! ") == []


def test_one_hot_vectors_have_a_single_one() -> None:
    vocabulary = Vocabulary(["a", "b", "c"])
    assert one_hot(["c", "a", "c"], vocabulary).tolist() == [[0, 0, 1], [1, 0, 0], [0, 0, 1]]
    with pytest.raises(InputError, match=r"'bb' has no vector: did you mean b\?"):
        one_hot(["bb"], vocabulary)


def test_mat_cat_and_rat_are_the_rows_of_an_identity_matrix() -> None:
    vocabulary = Vocabulary.of(["mat cat", "rat cat"])
    assert sorted(vocabulary.words) == ["cat", "mat", "rat"]  # each word once
    assert one_hot(vocabulary.words, vocabulary).tolist() == np.eye(3).tolist()


def test_a_bag_is_the_sum_of_its_words() -> None:
    vocabulary = Vocabulary.of(TEXTS)
    bags = bag_of_words(TEXTS, vocabulary).to_dense()
    for text, bag in zip(TEXTS, bags, strict=True):
        assert bag.tolist() == one_hot(words_of(text), vocabulary).sum(dim=0).tolist()


def test_tf_idf_is_the_formula() -> None:
    taught = TfIdf(["a b b", "a"])
    (row,) = taught(["a b b", "a"]).to_dense()[:1].tolist()
    a, b = 1.0, 2 * (math.log(3 / 2) + 1)
    assert row == pytest.approx([a / math.hypot(a, b), b / math.hypot(a, b)], abs=1e-12)


TEXT = st.lists(st.sampled_from(["ant", "Bee", "cow", "dog", "eel", "!", "été"]), max_size=12).map(" ".join)


@given(st.lists(TEXT, min_size=1, max_size=8), st.lists(TEXT, max_size=4), st.booleans(), st.integers(1, 6))
def test_tf_idf_is_scikit_learns(texts: list[str], others: list[str], sublinear: bool, most: int) -> None:
    library = pytest.importorskip("sklearn.feature_extraction.text", reason="the extra `tasks` is not installed")
    texts = [*texts, "ant"]
    theirs = library.TfidfVectorizer(tokenizer=words_of, token_pattern=None, lowercase=False, sublinear_tf=sublinear)
    ours = TfIdf(texts, sublinear=sublinear)
    np.testing.assert_allclose(ours(texts).to_dense(), theirs.fit_transform(texts).toarray(), rtol=0, atol=1e-12)
    assert ours.vocabulary.words == theirs.get_feature_names_out().tolist()
    np.testing.assert_allclose(ours.idf, theirs.idf_, rtol=0, atol=1e-12)
    if others:
        np.testing.assert_allclose(ours(others).to_dense(), theirs.transform(others).toarray(), rtol=0, atol=1e-12)
    bags = library.CountVectorizer(tokenizer=words_of, token_pattern=None, lowercase=False).fit_transform(texts)
    assert bag_of_words(texts, ours.vocabulary).to_dense().tolist() == bags.toarray().tolist()
    assert len(TfIdf(texts, most=most).vocabulary) == min(most, len(ours.vocabulary))


def test_no_word_at_all_is_a_sentence() -> None:
    with pytest.raises(InputError, match="no word in any text"):
        TfIdf(["?!", ""])
