"""Masks: True = may attend, whatever a mask is made of."""

from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from glassformer.errors import ConfigurationError, InputError
from glassformer.parts import Mask, causal, documents, pad, padding, window

from .helpers import seeds


def rows(mask: Mask, queries: int, keys: int) -> list[str]:
    """The table of one sentence as a picture: x where a query (down) may attend to a key (across)."""
    table = mask.table(queries, keys)
    assert table is not None
    table = table.expand(1, 1, queries, keys)[0, 0]
    return ["".join("x" if allowed else "." for allowed in row) for row in table.tolist()]


def test_causal_is_the_past_and_oneself() -> None:
    assert rows(causal(), 4, 4) == ["x...", "xx..", "xxx.", "xxxx"]


def test_the_last_query_stands_at_the_last_key() -> None:
    assert rows(causal(), 2, 4) == ["xxx.", "xxxx"]
    assert rows(window(2), 2, 5) == ["..xxx", "...xx"]


def test_a_window_is_less_than_its_size_away_on_both_sides() -> None:
    assert rows(window(1), 3, 3) == ["x..", ".x.", "..x"]
    assert rows(window(2), 4, 4) == ["xx..", "xxx.", ".xxx", "..xx"]
    assert rows(window(2) & causal(), 4, 4) == ["x...", "xx..", ".xx.", "..xx"]


def test_padding_is_attended_by_nobody() -> None:
    assert rows(padding(torch.tensor([[True, True, False]])), 3, 3) == ["xx.", "xx.", "xx."]
    assert rows(padding(torch.tensor([[True, True, False]])) & causal(), 3, 3) == ["x..", "xx.", "xx."]


def test_documents_are_apart_and_padding_is_in_none() -> None:
    packed = documents(torch.tensor([[0, 0, 1, 1, -1]]))
    assert rows(packed, 5, 5) == ["xx...", "xx...", "..xx.", "..xx.", "....."]
    assert rows(packed & causal(), 5, 5) == ["x....", "xx...", "..x..", "..xx.", "....."]


def test_a_mask_that_forbids_nothing_has_no_table() -> None:
    assert Mask().table(3, 3) is None
    assert (Mask() & Mask()).table(3, 3) is None


def test_only_the_bare_word_causal_needs_no_table() -> None:
    keep = torch.ones(1, 3, dtype=torch.bool)
    assert causal().only_causal
    assert (causal() & causal() & Mask()).only_causal
    for other in (window(2), padding(keep), documents(keep.long())):
        assert not other.only_causal
        assert not (causal() & other).only_causal
        assert not (other & causal()).only_causal


def test_select_keeps_the_rows_of_some_sentences() -> None:
    keep = torch.tensor([[True, False], [True, True], [False, True]])
    chosen = (padding(keep) & causal()).select(torch.tensor([2, 0]))
    table, expected = chosen.table(2, 2), (padding(keep[[2, 0]]) & causal()).table(2, 2)
    assert table is not None
    assert expected is not None
    assert torch.equal(table, expected)
    assert causal().select(torch.tensor([1])).only_causal


@pytest.mark.parametrize("shape", [(2, 3), (1, 1, 2, 3)])
def test_select_leaves_a_table_that_all_sentences_share(shape: tuple[int, ...]) -> None:
    shared = torch.rand(shape) < 0.5
    table = Mask(allowed=shared).select(torch.tensor([1, 0, 2])).table(2, 3)
    assert table is not None
    assert torch.equal(table.expand(3, 1, 2, 3), shared.expand(3, 1, 2, 3))


def test_pad_makes_a_table_and_says_what_is_real() -> None:
    tokens, keep = pad([[5, 6, 7], [8], []], value=9)
    assert tokens.tolist() == [[5, 6, 7], [8, 9, 9], [9, 9, 9]]
    assert keep.tolist() == [[True, True, True], [True, False, False], [False, False, False]]
    assert tokens.dtype == torch.long
    assert keep.dtype == torch.bool


@given(st.lists(st.lists(st.integers(0, 50), max_size=6), max_size=5))
def test_what_was_padded_can_be_read_back(sentences: list[list[int]]) -> None:
    tokens, keep = pad(sentences)
    assert tokens.shape == keep.shape == (len(sentences), max(map(len, sentences), default=0))
    assert [row[real].tolist() for row, real in zip(tokens, keep, strict=True)] == sentences
    assert (tokens[~keep] == 0).all()


@given(
    seed=seeds,
    batch=st.integers(1, 3),
    length=st.integers(1, 6),
    use=st.permutations(["padding", "documents", "causal", "window", "table"]),
    count=st.integers(1, 5),
    size=st.integers(1, 5),
)
def test_combinations_allow_what_each_allows(
    seed: int, batch: int, length: int, use: list[str], count: int, size: int
) -> None:
    torch.manual_seed(seed)
    keep = torch.rand(batch, length) < 0.7
    numbers = torch.randint(-1, 2, (batch, length))
    allowed = torch.rand(batch, 1, length, length) < 0.7
    masks = {
        "padding": padding(keep),
        "documents": documents(numbers),
        "causal": causal(),
        "window": window(size),
        "table": Mask(allowed=allowed),
    }
    chosen = use[:count]
    mask = masks[chosen[0]]
    for name in chosen[1:]:
        mask &= masks[name]
    table = mask.table(length, length)
    assert table is not None
    table = table.expand(batch, 1, length, length)
    for b, t, s in product(range(batch), range(length), range(length)):
        rules = {
            "padding": bool(keep[b, s]),
            "documents": bool(numbers[b, t] == numbers[b, s] and numbers[b, t] >= 0),
            "causal": s <= t,
            "window": abs(t - s) < size,
            "table": bool(allowed[b, 0, t, s]),
        }
        assert bool(table[b, 0, t, s]) == all(rules[name] for name in chosen)


@given(first=st.integers(1, 5), second=st.integers(1, 5))
def test_two_windows_are_the_narrower_one(first: int, second: int) -> None:
    assert rows(window(first) & window(second), 6, 6) == rows(window(min(first, second)), 6, 6)


@given(queries=st.integers(1, 5), past=st.integers(0, 5), size=st.integers(1, 5))
def test_new_queries_have_the_last_rows_of_the_whole_table(queries: int, past: int, size: int) -> None:
    for mask in (causal(), window(size), causal() & window(size)):
        assert rows(mask, queries, past + queries) == rows(mask, past + queries, past + queries)[past:]


@pytest.mark.parametrize("keep", [torch.ones(2, 3), torch.ones(3, dtype=torch.bool)])
def test_a_padding_mask_is_a_boolean_table(keep: Tensor) -> None:
    with pytest.raises(InputError, match=r"a padding mask is boolean of shape \(batch, length\), not torch\.\w+ \("):
        padding(keep)


def test_document_numbers_are_a_table() -> None:
    with pytest.raises(InputError, match=r"document numbers have the shape \(batch, length\), not \(3,\)"):
        documents(torch.zeros(3))


def test_a_window_has_at_least_one_token() -> None:
    with pytest.raises(ConfigurationError, match="a window must be at least 1 token wide, not 0"):
        window(0)


def test_a_window_by_positions_is_the_table_where_keys_stand_in_order_and_right_where_they_do_not() -> None:
    where = torch.arange(5)[None]
    by_position = window(2).near(where, where).allowed
    assert by_position is not None
    assert torch.equal(by_position[0, 0], table_of(window(2), 5))
    slots = torch.tensor([[0, 1, 1, 2, 2]])  # two beams a step: five slots, three positions
    beams = window(2).near(torch.tensor([[2]]), slots).allowed
    assert beams is not None
    assert beams[0, 0].int().tolist() == [[0, 1, 1, 1, 1]]
    assert causal().near(where, where).only_causal  # no window, nothing to do


def test_real_tokens_are_those_that_anybody_may_attend_to() -> None:
    keep = torch.tensor([[True, True, False], [True, False, False]])
    for mask in (padding(keep), padding(keep) & causal(), documents(torch.tensor([[0, 1, -1], [0, -1, -1]]))):
        assert mask.real is not None
        assert torch.equal(mask.real, keep)
    assert causal().real is None
    shared = Mask(allowed=torch.tensor([[True, False], [True, False]])).real  # one table for all sentences
    assert shared is not None
    assert shared.tolist() == [[True, False]]


def table_of(mask: Mask, length: int) -> Tensor:
    table = mask.table(length, length)
    assert table is not None
    return table
