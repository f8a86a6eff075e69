"""Varied pairs: the same change on both sides, with the given probability, always the same for a pair and a seed."""

from hypothesis import given
from hypothesis import strategies as st

from glassformer.tasks.translation.varying import as_typed, shared_names, with_other_name

PAIR = "Tom met Mary in Boston.", "Tom hat Mary in Boston getroffen."


def test_names_are_the_capitalised_words_that_both_sides_have() -> None:
    assert shared_names(*PAIR) == ["Tom", "Mary", "Boston"]
    assert shared_names("I live in Munich.", "Ich lebe in München.") == []
    assert shared_names("The TV is on.", "Der TV ist an.") == []


@given(st.integers(0, 10**6))
def test_each_name_becomes_the_same_new_one_on_both_sides(seed: int) -> None:
    source, target = with_other_name(*PAIR, probability=1.0, seed=seed)
    assert (source, target) == with_other_name(*PAIR, probability=1.0, seed=seed)
    first, met, second, inside, city = source.rstrip(".").split()
    assert (met, inside) == ("met", "in")
    assert target == f"{first} hat {second} in {city} getroffen."
    assert not {first, second, city} & {"Tom", "Mary", "Boston"}
    assert all(name.istitle() and name.isalpha() for name in (first, second, city))


def test_words_that_count_as_names_are_replaced_where_each_stands_once() -> None:
    words = [("he", "er"), ("Mary", "Maria")]
    source, target = with_other_name("He'll see Mary.", "Er wird Maria sehen.", 1.0, 1, words)
    first, second = source.removesuffix(".").split("'ll see ")
    assert target == f"{first} wird {second} sehen."
    assert first.istitle()
    assert second.istitle()
    for pair in (("He knows he can.", "Er weiß, er kann."), ("He comes.", "Sie kommt."), ("There", "Der")):
        assert with_other_name(*pair, 1.0, 1, words) == pair


def test_the_probability_decides_how_many_pairs_change() -> None:
    changed = sum(with_other_name(*PAIR, probability=0.3, seed=seed) != PAIR for seed in range(2_000))
    assert 500 < changed < 700
    assert with_other_name(*PAIR, probability=0.0, seed=1) == PAIR


def test_texts_as_people_type_them_lose_the_full_stop_of_both_sides() -> None:
    pair = "It is late.", "Es ist spät."
    found = {as_typed(*pair, probability=1.0, seed=seed) for seed in range(50)}
    assert found == {("It is late", "Es ist spät"), ("it is late", "Es ist spät")}
    for other in (("Is it late?", "Ist es spät?"), ("It is late.", "Es ist spät?"), ("It is", "Es ist"), ("", "")):
        assert as_typed(*other, probability=1.0, seed=1) == other
    changed = sum(as_typed(*pair, probability=0.3, seed=seed) != pair for seed in range(2_000))
    assert 500 < changed < 700
