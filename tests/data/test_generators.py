"""Generators: the same every time, right, and nothing that is held out in training."""

from datetime import date
from hashlib import blake2b
from pathlib import Path

import pytest
from babel.dates import format_date
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.data.source import SPLITS, Source, Split
from glassformer.data.sources.generated import DatesSource, GrammarSource, ToySource
from glassformer.errors import DataError
from glassformer.recipe import make_recipe

from .helpers import make_source, pairs_of, read

LOCALES = ("en_US", "en_GB", "it", "fr", "de", "es", "pt", "nl", "hi", "ta")


def pairs(source: Source, split: Split) -> list[tuple[str, str]]:
    return [example[0] for example, _ in read(source, Path(), split)]


@pytest.fixture(scope="module")
def drawn() -> dict[str, list[tuple[str, str]]]:
    source = DatesSource(kind="dates", count=6000)
    return {split: pairs(source, split) for split in SPLITS}


def test_there_are_as_many_different_dates_as_asked_for(drawn: dict[str, list[tuple[str, str]]]) -> None:
    assert {split: len(set(found)) for split, found in drawn.items()} == {"train": 6000, "valid": 1000, "test": 1000}


@settings(max_examples=3)
@given(seed=st.integers(0, 1000))
def test_held_out_days_never_occur_in_training(seed: int) -> None:
    source = DatesSource(kind="dates", count=3000, seed=seed, first_year=2001, last_year=2003)
    days = [{day for _, day in pairs(source, split)} for split in SPLITS]
    assert not days[0] & days[1]
    assert not days[0] & days[2]
    assert not days[1] & days[2]
    assert all(len(each) > 20 for each in days[1:])


def test_more_pairs_do_not_move_days_to_another_side(drawn: dict[str, list[tuple[str, str]]]) -> None:
    more = {day for _, day in pairs(DatesSource(kind="dates", count=8000), "train")}
    assert not more & {day for _, day in drawn["test"]}


def test_a_seed_says_which(drawn: dict[str, list[tuple[str, str]]]) -> None:
    again = pairs(DatesSource(kind="dates", count=6000), "train")
    other = pairs(DatesSource(kind="dates", count=6000, seed=1), "train")
    assert again == drawn["train"] != other


def test_every_language_and_style_occurs_and_means_its_day(drawn: dict[str, list[tuple[str, str]]]) -> None:
    seen = set()
    for written, iso in drawn["train"][:900]:
        day = date.fromisoformat(iso)
        assert 1950 <= day.year <= 2049
        for locale in LOCALES:
            for style in ("medium", "long", "full"):
                if written == format_date(day, style, locale):
                    seen.add((locale, style))
    assert len(seen) == 30
    assert any(written.startswith(("Mon, ", "Tue, ")) for written, _ in drawn["train"])  # a short weekday


def test_the_issue_s_example() -> None:
    source = DatesSource(kind="dates", count=9999, locales=("hi",), first_year=2013, last_year=2013)
    found = {pair for split in SPLITS for pair in pairs(source, split)}
    assert ("सोमवार, 5 अगस्त 2013", "2013-08-05") in found


def test_few_days_give_few_pairs_not_an_endless_search() -> None:
    source = DatesSource(kind="dates", count=99_999, locales=("it",), first_year=2000, last_year=2000)
    assert 900 < len(pairs(source, "train")) < 4 * 366


def test_an_unknown_language_is_named_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds 'enn', which Babel does not know: did you mean nn"):
        pairs_of({"kind": "dates", "locales": ["enn"]}, tmp_path)


def test_years_the_wrong_way_round_are_refused() -> None:
    source = {"kind": "dates", "first_year": 2010, "last_year": 2009}
    with pytest.raises(ValueError, match=r"first_year 2010 is after source\.last_year 2009"):
        make_source(source)
    with pytest.raises(ValueError, match=r"first_year 2010 is after source\.last_year 2009"):
        make_recipe({"source": source})


@pytest.mark.parametrize("kind", ["copy", "reverse", "sort"])
def test_letters(kind: str) -> None:
    source = ToySource.model_validate({"kind": kind, "count": 300})
    found = {split: pairs(source, split) for split in SPLITS}
    assert (len(found["train"]), len(found["valid"]), len(found["test"])) == (300, 1000, 1000)
    for left, right in found["train"]:
        letters = left.split()
        expected = {"copy": letters, "reverse": letters[::-1], "sort": sorted(letters)}[kind]
        assert right.split() == expected
        assert 1 <= len(letters) <= 10
    assert not {s for s, _ in found["train"]} & {s for s, _ in found["valid"] + found["test"]}
    assert pairs(source, "train") == found["train"]


@pytest.mark.parametrize("split", SPLITS)
def test_few_strings_give_few_pairs(split: Split) -> None:
    assert len(pairs(ToySource(kind="copy", symbols=2, length=3), split)) <= 14


def test_sentences() -> None:
    source = GrammarSource(kind="grammar", count=400)
    found = {split: pairs(source, split) for split in SPLITS}
    assert {split: len(set(some)) for split, some in found.items()} == {"train": 400, "valid": 1000, "test": 1000}
    assert all(len(sentence.split()) == len(tags.split()) for sentence, tags in found["train"])
    assert not {sentence for sentence, _ in found["train"]} & {sentence for sentence, _ in found["test"]}


DRAWN = {  # golden: what earlier releases drew
    "copy": "69c259908f774a8a",
    "reverse": "4ebce18b22034e06",
    "sort": "c741d7129c544f44",
    "grammar": "456782e9505f2467",
}


@pytest.mark.parametrize("kind", DRAWN)
def test_a_seed_draws_what_it_always_drew(kind: str) -> None:
    found = pairs(make_source({"kind": kind, "count": 300, "seed": 3}), "train")
    assert blake2b(repr(found).encode(), digest_size=8).hexdigest() == DRAWN[kind]
