"""Sentences as tokens: every word is in one piece, and is answered for where it ends."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.data.report import Pair, Report
from glassformer.data.words import TagEncoder, Words, as_many
from glassformer.errors import DataError
from glassformer.recipe import Tokenizer as Section
from glassformer.text import Tokenizer

TEXTS = ["the old dogs can fish", "they fished here in the river today", "dogs river can", "naïve café"] * 4


def tokenizer(kind: str) -> Tokenizer:
    made = Tokenizer.train(iter(TEXTS), Section(kind=kind, vocabulary=400))
    made.add_frame()
    return made


KINDS = {kind: tokenizer(kind) for kind in ("bpe", "unigram", "word", "character", "byte")}
words = st.text(st.characters(codec="utf-8", exclude_categories=("Z", "C")), min_size=1, max_size=6)


@given(kind=st.sampled_from(sorted(KINDS)), sentence=st.lists(words, min_size=1, max_size=8), limit=st.integers(3, 30))
@settings(max_examples=120, deadline=None)
def test_every_word_is_in_one_piece_within_the_limit(kind: str, sentence: list[str], limit: int) -> None:
    sentence = [each for word in sentence for each in word.split()] or ["a"]
    own = KINDS[kind]
    (pieces,) = Words(own, limit)([sentence])
    assert sum(len(piece.lasts) for piece in pieces) == len(sentence)
    for piece in pieces:
        assert len(piece.tokens) <= limit
        assert (piece.tokens[0], piece.tokens[-1]) == (own.start, own.end)
        assert piece.lasts == sorted({*piece.lasts})
        assert all(0 < last < len(piece.tokens) - 1 for last in piece.lasts)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_word_ends_where_its_last_letter_does(kind: str) -> None:
    own, sentence = KINDS[kind], ["the", "old", "river"]
    (piece,) = Words(own, 100)([sentence])[0]
    assert piece.tokens[1:-1] == own.encode(" ".join(sentence))
    for number, last in enumerate(piece.lasts):
        assert own.decode(piece.tokens[1 : last + 1]).strip() == " ".join(sentence[: number + 1])


def test_rows_ask_for_tags_where_words_end_and_unknown_tags_are_left_out() -> None:
    own = KINDS["word"]
    rows = TagEncoder(Words(own, 5), ["N", "V"])(["dogs can fish river", "the river"], ["N V V N", "D N"])
    assert rows.lengths.tolist() == [[5, 5], [3, 3]]
    assert rows.counts == {"label": 1, "split": 1}
    first, second = rows.flat[:10].tolist(), rows.flat[10:].tolist()
    assert first == [own.start, *own.encode("dogs can fish"), own.end, 0, 1, 2, 2, 0]
    assert second == [own.start, *own.encode("the river")[1:], own.end, 0, 1, 0]


def test_a_row_without_a_tag_for_each_word_is_bad() -> None:
    pairs = [Pair("they fish", "P V", "t.tsv:1"), Pair("they can fish", "P V", "t.tsv:2")]
    report = Report(read=2)
    assert list(as_many(iter(pairs), report, strict=False)) == pairs[:1]
    assert (report.read, report.bad, report.examples) == (
        2,
        {"not a tag a word": 1},
        ["t.tsv:2: has 3 words but 2 tags"],
    )
    with pytest.raises(DataError, match=r"^t.tsv:2: has 3 words but 2 tags \(data.strict is on\)$"):
        list(as_many(iter(pairs), Report(), strict=True))
