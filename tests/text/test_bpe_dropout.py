"""BPE-dropout: without a rate it is BPE, with one it draws, by the text and the seed only, and loses no text."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.errors import InputError
from glassformer.recipe import Tokenizer as Section
from glassformer.text import Tokenizer

TEXTS = ["the cat sat on the mat", "the dog sat on the log", "cats and dogs", "Übermut tut selten gut", "a b c"] * 5
PLAIN = Tokenizer.train(TEXTS, Section(vocabulary=330))


def rows(tokenizer: Tokenizer, texts: list[str]) -> list[list[int]]:
    flat, lengths = tokenizer.encode_flat(texts)
    return [each.tolist() for each in np.split(flat, np.cumsum(lengths)[:-1])]


@settings(max_examples=40)
@given(st.lists(st.text(max_size=30), min_size=1, max_size=5))
def test_without_a_rate_it_is_the_tokenizer_itself(texts: list[str]) -> None:
    (drawing,) = PLAIN.with_dropout(0.0, 1)
    assert rows(drawing, texts) == PLAIN.encode_batch(texts)


@settings(max_examples=40)
@given(st.text(max_size=60), st.floats(0, 1), st.integers(0, 3))
def test_no_text_is_lost_and_the_same_seed_draws_the_same(text: str, rate: float, seed: int) -> None:
    drawing, again = (PLAIN.with_dropout(rate, 4)[seed] for _ in range(2))
    (ids,) = rows(drawing, [text])
    assert PLAIN.decode(ids) == PLAIN.decode(PLAIN.encode(text)) == text
    assert rows(again, ["something else", text])[1] == ids


def test_leaving_out_all_merges_gives_bytes_and_seeds_draw_differently() -> None:
    assert rows(PLAIN.with_dropout(1.0, 1)[0], ["the cat"]) == [[PLAIN.encode(letter)[0] for letter in "the cat"]]
    found = {tuple(rows(each, ["the cat sat on the mat"])[0]) for each in PLAIN.with_dropout(0.3, 8)}
    assert len(found) > 4
    assert min(map(len, found)) >= len(PLAIN.encode("the cat sat on the mat"))


def test_a_word_that_is_too_long_to_draw_is_encoded_as_ever() -> None:
    text = "x" * 100_000
    assert rows(PLAIN.with_dropout(0.5, 1)[0], [text, "cats"])[0] == PLAIN.encode(text)


def test_a_tokenizer_without_merges_is_refused() -> None:
    with pytest.raises(InputError, match=r"tokenizer\.dropout needs a byte-level BPE tokenizer"):
        Tokenizer.train(TEXTS, Section(kind="word")).with_dropout(0.1, 1)
