"""Which examples stand for all: drawn over the whole split, with all references, different, and of all lengths."""

from hypothesis import given
from hypothesis import strategies as st

from glassformer.evaluation.choosing import drawn, spread


def test_examples_are_drawn_over_all_of_a_sorted_file_and_stay_in_order() -> None:
    found = drawn(range(10_000), 500)
    assert len(found) == 500
    assert found == sorted(found)
    assert 4_700 < sum(found) / 500 < 5_300
    assert found == drawn(range(10_000), 500)  # by seed
    assert drawn(range(7), 7) == list(range(7))


@given(st.lists(st.integers(0, 9), min_size=1), st.integers(1, 40))
def test_what_has_the_same_key_is_drawn_together(keys: list[int], most: int) -> None:
    found = drawn([*enumerate(keys)], most, key=lambda each: each[1])
    kept = {key for _, key in found}
    assert found == [each for each in enumerate(keys) if each[1] in kept]
    assert len(found) <= most or len(kept) == 1


def test_what_is_shown_is_different_and_of_all_lengths() -> None:
    texts = ["run !"] * 7 + ["get lost !"] * 7 + [" ".join("a" * size) for size in range(1, 21)]
    rows = spread(texts, [len(text.split()) for text in texts], 10)
    shown = [texts[row] for row in rows]
    assert len({*shown}) == 10
    sizes = [len(text.split()) for text in shown]
    assert sizes == sorted(sizes)
    assert (sizes[0], sizes[-1]) == (1, 20)
    assert 7 <= sizes[5] <= 13
    assert spread(["a", "a"], [1, 1], 10) == [0]
