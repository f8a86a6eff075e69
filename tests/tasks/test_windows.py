"""Windows: every token of a context is seen, and what a span of tokens says is what stands in the text."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.data.examples import AnswerSpan, Question
from glassformer.errors import ConfigurationError
from glassformer.recipe import Tokenizer as Section
from glassformer.tasks.answering import AnsweringTask
from glassformer.tasks.answering.windows import ABSENT, overlapping, positions, windows_of
from glassformer.text import Tokenizer

from .contexts import context

TEXTS = ["the cat sat on the mat", "Ünïcödé ist überall, auch 東京 und 👩‍👩‍👧", "a\u0301 b\u200b c\n d"] * 30
KINDS = ("byte", "bpe", "unigram", "word", "character")
texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60)


def framed(kind: str, lowercase: bool = False) -> Tokenizer:
    made = Tokenizer.train(TEXTS, Section.model_validate({"kind": kind, "vocabulary": 400, "lowercase": lowercase}))
    made.add_frame()
    return made


TOKENIZERS = {kind: framed(kind) for kind in KINDS} | {"lower": framed("bpe", lowercase=True)}


@given(st.integers(0, 300), st.integers(2, 50), st.integers(0, 49))
def test_parts_cover_everything_and_share_what_they_should(count: int, room: int, stride: int) -> None:
    if stride >= room:
        with pytest.raises(ConfigurationError, match=r"task\.stride"):
            overlapping(count, room, stride)
        return
    found = overlapping(count, room, stride)
    assert {place for left, right in found for place in range(left, right)} == set(range(count))
    assert all(right - left <= room for left, right in found)
    assert all(before[1] - after[0] >= stride for before, after in pairwise(found))
    assert found[-1][1] == count


@pytest.mark.parametrize("name", TOKENIZERS)
@given(text=texts, data=st.data())
def test_an_answer_anywhere_in_any_text_is_found_again_by_its_tokens(name: str, text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start + 1, len(text)))
    windows = windows_of([("who", text)], TOKENIZERS[name], 24, 6, 8)[0]
    answer = AnswerSpan(text[start:end], start)
    for window, (first, last) in zip(windows, positions(windows, [answer]), strict=True):
        assert len(window.tokens) <= 24
        if (first, last) != ABSENT:
            left, right = window.characters(first, last)
            assert left <= start < end <= right  # the tokens hold the answer …
            inner = [window.spans[place - window.first] for place in (first, last)]
            assert inner[0][1] > start  # … and none that does not touch it
            assert inner[1][0] < end


def test_a_long_context_is_read_in_windows_that_overlap() -> None:
    tokenizer = TOKENIZERS["character"]
    text = "abcdefghij" * 3
    windows = windows_of([("which?", text)], tokenizer, 15, 4, 3)[0]
    start, end, question = tokenizer.start, tokenizer.end, tokenizer.encode("whi")
    assert [window.tokens[:5] for window in windows] == [[start, *question, end]] * len(windows)
    assert all(window.tokens[-1] == end for window in windows)
    assert [window.left for window in windows] == [0, 5, 10, 15, 20, 21]
    found = positions(windows, [AnswerSpan(text[6:8], 6)])
    assert found == [(11, 12), (6, 7), ABSENT, ABSENT, ABSENT, ABSENT]
    assert text[slice(*windows[1].characters(6, 7))] == "gh"


def test_rows_point_to_the_answer_or_to_the_start() -> None:
    tokenizer = TOKENIZERS["word"]
    answered = Question("where", "the cat sat on the mat", (AnswerSpan("the mat", 15), AnswerSpan("mat", 19)))
    silent = answered._replace(answers=())
    task = AnsweringTask(kind="answering", stride=1, max_question=4)
    rows = task.encode([answered, silent], context((tokenizer,), 12))
    assert rows.counts == {"unanswerable": 1}
    assert len(rows.lengths) == 1 + (len(tokenizer.encode("the cat sat on the mat")) > 8)
    window = windows_of([("where", answered.context)], tokenizer, 12, 1, 4)[0][-1]
    first, last = rows.flat[-2:].tolist()
    assert answered.context[slice(*window.characters(first, last))].strip() == "the mat"
    both = task.model_copy(update={"unanswerable": True}).encode([silent], context((tokenizer,), 64))
    assert both.flat[-2:].tolist() == [0, 0]
