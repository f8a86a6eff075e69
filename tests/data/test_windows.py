"""Windows: every token of a context is seen, and what a span of tokens says is what stands in the text."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.data.files import BETWEEN
from glassformer.data.windows import ABSENT, AnswerEncoder, Windows, places, span_of, split, stretches
from glassformer.errors import ConfigurationError
from glassformer.recipe import Tokenizer as Section
from glassformer.text import Tokenizer

TEXTS = ["the cat sat on the mat", "Ünïcödé ist überall, auch 東京 und 👩‍👩‍👧", "a\u0301 b\u200b c\n d"] * 30
KINDS = ("byte", "bpe", "unigram", "word", "character")
texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60)


def framed(kind: str, lowercase: bool = False) -> Tokenizer:
    made = Tokenizer.train(TEXTS, Section.model_validate({"kind": kind, "vocabulary": 400, "lowercase": lowercase}))
    made.add_frame()
    return made


TOKENIZERS = {kind: framed(kind) for kind in KINDS} | {"lower": framed("bpe", lowercase=True)}


@given(st.integers(0, 300), st.integers(2, 50), st.integers(0, 49))
def test_stretches_cover_everything_and_share_what_they_should(count: int, room: int, stride: int) -> None:
    if stride >= room:
        with pytest.raises(ConfigurationError, match=r"task\.stride"):
            stretches(count, room, stride)
        return
    found = stretches(count, room, stride)
    assert {place for left, right in found for place in range(left, right)} == set(range(count))
    assert all(right - left <= room for left, right in found)
    assert all(before[1] - after[0] >= stride for before, after in pairwise(found))
    assert found[-1][1] == count


@pytest.mark.parametrize("name", TOKENIZERS)
@given(context=texts, data=st.data())
def test_an_answer_anywhere_in_any_text_is_found_again_by_its_tokens(
    name: str, context: str, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(context) - 1))
    end = data.draw(st.integers(start + 1, len(context)))
    windows = Windows(TOKENIZERS[name], 24, 6, 8)([("who", context)])[0]
    for window, (first, last) in zip(windows, places(windows, (start, end)), strict=True):
        assert len(window.tokens) <= 24
        if (first, last) != ABSENT:
            left, right = window.characters(first, last)
            assert left <= start < end <= right  # the tokens hold the answer …
            inner = [window.spans[place - window.first] for place in (first, last)]
            assert inner[0][1] > start  # … and none that does not touch it
            assert inner[1][0] < end


def test_a_long_context_is_read_in_windows_that_overlap() -> None:
    tokenizer = TOKENIZERS["character"]
    context = "abcdefghij" * 3
    windows = Windows(tokenizer, 15, 4, 3)([("which?", context)])[0]
    start, end, question = tokenizer.start, tokenizer.end, tokenizer.encode("whi")
    assert [window.tokens[:5] for window in windows] == [[start, *question, end]] * len(windows)
    assert all(window.tokens[-1] == end for window in windows)
    assert [window.left for window in windows] == [0, 5, 10, 15, 20, 21]
    found = places(windows, (6, 8))
    assert found == [(11, 12), (6, 7), ABSENT, ABSENT, ABSENT, ABSENT]
    assert context[slice(*windows[1].characters(6, 7))] == "gh"


def test_rows_point_to_the_answer_or_to_the_start() -> None:
    tokenizer = TOKENIZERS["word"]
    source = f"where{BETWEEN}the cat sat on the mat"
    given: list[dict[str, str | int]] = [{"text": "the mat", "start": 15}, {"text": "mat", "start": 19}]
    encode = AnswerEncoder(Windows(tokenizer, 12, 1, 4), unanswerable=False)
    rows = encode([source, source], [json.dumps(given), "[]"])
    assert rows.counts == {"unanswerable": 1}
    assert len(rows.lengths) == 1 + (len(tokenizer.encode("the cat sat on the mat")) > 8)
    window = Windows(tokenizer, 12, 1, 4)([split(source)])[0][-1]
    first, last = rows.flat[-2:].tolist()
    assert source.split(BETWEEN)[1][slice(*window.characters(first, last))].strip() == "the mat"
    assert span_of(given[0]) == (15, 22)
    both = AnswerEncoder(Windows(tokenizer, 64, 1, 4), unanswerable=True)([source], ["[]"])
    assert both.flat[-2:].tolist() == [0, 0]
