"""Cleaning: splits that hold still, filters that say why, and a memory of what was seen."""

import unicodedata
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.data import Document, Report
from glassformer.data.cleaning import Seen, content_hash, folded, normalise, split_of
from glassformer.recipe import Data
from glassformer.tasks.translation import TextPair, TranslationTask

lists = st.lists(st.text(min_size=1, max_size=8), max_size=30)


def side(source: str, seed: int = 0, valid: float = 0.2, test: float = 0.2) -> str:
    return split_of(content_hash(folded(source), seed), valid, test)


@given(source=st.text(), seed=st.integers(-(2**40), 2**40))
def test_capitals_spaces_and_unicode_forms_stay_on_one_side(source: str, seed: int) -> None:
    sides = {side(each, seed) for each in (source, f"  {source}\n", unicodedata.normalize("NFC", source))}
    assert side(unicodedata.normalize("NFKC", source), seed) in sides
    assert len(sides) == 1


def test_capitals_do_not_matter() -> None:
    assert all(side(f"Sentence {i}") == side(f"SENTENCE  {i} ") for i in range(200))


@given(source=st.text(), shares=st.lists(st.floats(0, 0.3), min_size=4, max_size=4))
def test_larger_shares_only_take_from_training(source: str, shares: list[float]) -> None:
    test, more = shares[0], shares[1]
    if side(source, valid=0, test=test) == "test":
        assert side(source, valid=0, test=test + more) == "test"
    if side(source, valid=shares[2], test=test) == "valid":
        assert side(source, valid=shares[2] + shares[3], test=test) == "valid"


def test_shares_are_what_was_asked_for() -> None:
    counts = Counter(side(f"sentence {i}", seed=3, valid=0.05, test=0.1) for i in range(20_000))
    assert counts["valid"] / 20_000 == pytest.approx(0.05, abs=0.006)
    assert counts["test"] / 20_000 == pytest.approx(0.1, abs=0.008)


def test_another_seed_is_another_split() -> None:
    assert [side(str(i), 0) for i in range(100)] != [side(str(i), 1) for i in range(100)]


def test_hashes_are_the_same_on_every_machine() -> None:
    assert content_hash(b"Glassformer", 7) == 103741712847470400


@given(blocks=st.lists(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 20), max_size=30), max_size=8))
def test_what_was_seen_is_remembered(blocks: list[list[int]]) -> None:
    seen, expected = Seen(), set[int]()
    for block in blocks:
        assert seen.contains(np.array(block, np.uint64)).tolist() == [each in expected for each in block]
        new = seen.add(np.array(block, np.uint64)).tolist()
        for each, is_new in zip(block, new, strict=True):
            assert is_new == (each not in expected)
            expected.add(each)
    assert len(seen) == len(expected)


@given(source=st.text(min_size=1), target=st.text(min_size=1), most=st.integers(1, 8), ratio=st.floats(1.1, 4))
def test_filters_drop_what_they_say(source: str, target: str, most: int, ratio: float) -> None:
    reason = TranslationTask().why_dropped(TextPair(source, target), Data(max_characters=most, max_ratio=ratio))
    lengths = sorted((len(source), len(target)))
    if not source.strip() or not target.strip():
        assert reason == "empty after normalisation"
    elif lengths[1] > most:
        assert reason == "too many characters"
    elif lengths[1] > ratio * lengths[0]:
        assert reason == "lengths too different"
    else:
        assert reason is None


def test_no_ratio_no_filter() -> None:
    dropped = TranslationTask().why_dropped
    assert dropped(TextPair("a", "b" * 2000), Data()) is None
    assert dropped(TextPair("a", "b" * 2001), Data()) == "too many characters"


@pytest.mark.parametrize(
    ("form", "strip", "expected"),
    [
        ("nfc", True, "é ﬁ x"),
        ("nfkc", True, "é fi x"),
        ("none", True, "e\u0301 ﬁ x"),
        ("nfc", False, " é  ﬁ\tx\n"),
    ],
)
def test_normalisation(form: str, strip: bool, expected: str) -> None:
    data = Data.model_validate({"normalise": form, "strip": strip})
    assert normalise(" e\u0301  ﬁ\tx\n", data) == expected
    assert normalise(expected, data) == expected


def test_a_report_reads_well_and_comes_back() -> None:
    report = Report(read=1200, dropped=Counter({"duplicates": 3}), kept=Counter({"train": 1000, "valid": 100}))
    for line in range(12):
        report.add_bad("empty side", f"t.tsv:{line}", "the source is empty")
    report.changed["truncated"] += 2
    report.shared["test"] += 1
    assert report.lines() == [
        "1,212 rows read",
        "12 bad rows: 12 empty side",
        *(f"  t.tsv:{line}: the source is empty" for line in range(10)),
        "  … and 2 more",
        "3 dropped: 3 duplicates",
        "too long: 2 truncated",
        "1 training examples are in test, too",
        "kept: 1,000 train, 100 valid",
    ]
    assert Report.from_dict(report.to_dict()) == report
    assert Report().lines() == ["0 rows read", "kept: nothing"]


def test_an_example_does_not_change() -> None:
    with pytest.raises(AttributeError):
        Document("a").text = "x"  # type: ignore[misc]
