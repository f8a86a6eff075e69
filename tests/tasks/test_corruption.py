"""Span corruption: what is cut out can be put back."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.data import Encoded
from glassformer.recipe import Tokenizer as Section
from glassformer.tasks.corruption import CorruptionTask, corrupted, draw_spans, spans_of
from glassformer.text import Tokenizer

SENTINELS = list(range(1000, 1100))
texts = st.lists(st.integers(4, 999), min_size=2, max_size=300)
ratios, means, seeds = st.floats(0.01, 0.9), st.floats(1, 10), st.integers(0, 2**32)


def restored(source: list[int], target: list[int], sentinels: list[int]) -> list[int]:
    """The text that a source and its target were made of."""
    spans = spans_of(target, sentinels)
    return [each for token in source for each in (spans.get(token, []) if token in sentinels else [token])]


@given(texts, ratios, means, seeds)
def test_source_and_target_together_are_the_text(tokens: list[int], ratio: float, mean: float, seed: int) -> None:
    spans = draw_spans(len(tokens), ratio, mean, 99, np.random.default_rng(seed))
    source, target = corrupted(tokens, spans, SENTINELS)
    assert restored(source, target, SENTINELS) == tokens
    assert target[-1] == SENTINELS[len(spans)]
    assert [token for token in source if token >= 1000] == SENTINELS[: len(spans)]
    assert len(source) + len(target) == len(tokens) + 2 * len(spans) + 1


@given(st.integers(2, 600), ratios, means, seeds)
def test_spans_are_as_many_and_as_long_as_asked(length: int, ratio: float, mean: float, seed: int) -> None:
    spans = draw_spans(length, ratio, mean, 99, np.random.default_rng(seed))
    hidden = min(max(round(length * ratio), 1), length - 1)
    assert spans[:, 1].sum() == hidden
    assert (spans[:, 1] >= 1).all()
    assert (spans[1:, 0] >= 1).all()  # two spans do not touch
    assert spans.sum() <= length
    assert len(spans) == min(max(round(hidden / mean), 1), hidden, length - hidden + 1, 99)


@pytest.mark.parametrize("tokens", [[], [7]])
def test_a_text_of_fewer_than_two_tokens_stays_whole(tokens: list[int]) -> None:
    spans = draw_spans(len(tokens), 0.15, 3.0, 99, np.random.default_rng(0))
    assert spans.shape == (0, 2)
    assert corrupted(tokens, spans, SENTINELS) == (tokens, SENTINELS[:1])


def test_every_place_is_hidden_equally_often() -> None:
    counts, rng = np.zeros(20), np.random.default_rng(0)
    for _ in range(4000):
        ((kept, hidden),) = draw_spans(20, 0.15, 3.0, 99, rng).tolist()
        counts[kept : kept + hidden] += 1
    assert counts[2:-2] / 4000 == pytest.approx(3 / 18, abs=0.03)
    assert counts[0] > 0
    assert counts[-1] > 0


def test_the_papers_example() -> None:
    words = ["Thank", "you", "for", "inviting", "me", "to", "your", "party", "last", "week"]
    tokens = list(range(4, 4 + len(words)))
    source, target = corrupted(tokens, np.array([[2, 2], [4, 1]]), SENTINELS)
    assert source == [4, 5, 1000, 8, 9, 10, 11, 1001, 13]
    assert target == [1000, 6, 7, 1001, 12, 1002]


def test_what_the_target_does_not_explain_is_left_out() -> None:
    assert restored([5, 1000, 6, 1001], [7, 1001, 8, 9, 1002, 3], SENTINELS) == [5, 6, 8, 9]


def test_batches_are_pairs_with_other_spans_each_time() -> None:
    tokenizer = Tokenizer.train([], Section(kind="byte"))
    tokenizer.add_sentinels()
    rows = Encoded.of([(tokenizer.encode(text), []) for text in ("the cat sat on the mat", "hello, world")]).rows()
    collate = CorruptionTask(mask_ratio=0.3).collate(rows, tokenizer)
    first, again, other = (collate(np.array([1, 0]), np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert first.source.tolist() == again.source.tolist()
    assert first.source.tolist() != other.source.tolist()
    assert first.rows.tolist() == [1, 0]
    for row, text in enumerate(("hello, world", "the cat sat on the mat")):
        source = first.source[row][first.source_mask[row]].tolist()
        target = first.target_out[row][first.target_mask[row]].tolist()
        assert target[-1] == tokenizer.end
        assert first.target_in[row, 0] == tokenizer.start
        assert tokenizer.decode(restored(source, target[:-1], tokenizer.sentinels)) == text


def test_a_tokenizer_with_one_sentinel_gets_the_others() -> None:
    tokenizer = Tokenizer.train(["<extra_id_0>"], Section(kind="word", vocabulary=20))
    tokenizer._engine.add_tokens(["<extra_id_0>"])
    assert len(tokenizer.sentinels) == 1
    task = CorruptionTask()
    task.add_special_tokens(tokenizer)
    tokens = list(range(1000, 1020))
    source, target = task.corruption(tokenizer)(tokens, np.random.default_rng(0))
    assert restored(source, target, tokenizer.sentinels)[: len(tokens)] == tokens
