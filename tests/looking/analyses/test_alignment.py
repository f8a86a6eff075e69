"""Alignment: links and error rates worked by hand, and the alignments that ship with the tests.

T target words, S source words
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import glassformer as gf
from glassformer.errors import InputError

from .making import made

analyses = gf.analyses
NAMES = {"encoder": ["▁the", "▁sta", "tion"], "decoder": ["start", "▁Bahn", "hof"], "written": ["▁Bahn", "hof", "end"]}
WORDS = {"encoder": [[0], [1, 2]], "decoder": [[0], [1, 2]], "written": [[0, 1], [2]]}
FIRST = [[0.6, 0.2, 0.2], [0.1, 0.4, 0.5], [0.9, 0.1, 0.0]]  # of words: Bahnhof .35 .65, end .9 .1
SECOND = [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.6, 0.0, 0.4]]  # read: Bahnhof .8 .2
TRACE = made({"decoder.0.cross.weights": [FIRST, SECOND]}, NAMES, WORDS)


def test_words_are_linked_not_pieces() -> None:
    found = analyses.alignment(TRACE, "decoder.0.cross", 0)
    assert found.weights.tolist() == [[pytest.approx(0.35), pytest.approx(0.65)]]
    assert (found.source, found.target) == (["the", "station"], ["Bahnhof"])
    assert found.links == {(1, 0)}
    assert str(found) == "1-0"


def test_the_step_that_reads_a_word_can_be_asked() -> None:
    found = analyses.alignment(TRACE, "decoder.0.cross", 1, row="read")
    assert found.weights.tolist() == [[pytest.approx(0.8), pytest.approx(0.2)]]
    assert found.target == ["Bahnhof"]
    assert found.links == {(0, 0)}


def test_a_threshold_links_several_words_or_none() -> None:
    assert analyses.alignment(TRACE, "decoder.0.cross", 0, threshold=0.3).links == {(0, 0), (1, 0)}
    assert analyses.alignment(TRACE, "decoder.0.cross", 0, threshold=0.7).links == set()


def test_without_a_head_it_is_the_mean_and_without_a_point_the_sharpest() -> None:
    mean = analyses.alignment(TRACE, "decoder.0.cross")
    assert mean.weights.tolist() == [[pytest.approx((0.35 + 0.5) / 2), pytest.approx((0.65 + 0.5) / 2)]]
    assert mean.head is None
    best = analyses.alignment(TRACE)
    assert (best.point, best.head) == ("decoder.0.cross.weights", 1)


def test_the_error_rate_by_hand() -> None:
    gold = analyses.Gold.read("0-0 1-1 2?1")
    assert gold.sure == {(0, 0), (1, 1)}
    assert gold.possible == {(0, 0), (1, 1), (2, 1)}
    # A = {0-0, 2-1, 3-3}: one of them sure, two possible; 1 - (1 + 2) / (3 + 2)
    assert analyses.aer([{(0, 0), (2, 1), (3, 3)}], [gold]) == pytest.approx(0.4)
    other = analyses.Gold.read("0-0")
    assert analyses.aer([{(0, 0), (2, 1), (3, 3)}, {(0, 0)}], [gold, other]) == pytest.approx(1 - 5 / 7)


LINKS = st.frozensets(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1)


@given(LINKS, LINKS, LINKS)
def test_the_error_rate_is_a_rate(found: Any, sure: Any, possible: Any) -> None:
    gold = analyses.Gold(sure, sure | possible)
    assert 0 <= analyses.aer([found], [gold]) <= 1
    assert analyses.aer([sure], [gold]) == 0
    assert analyses.aer([sure | possible], [gold]) == 0


def test_the_error_rate_of_every_head() -> None:
    found = analyses.alignment_errors([TRACE, TRACE], [analyses.Gold.read("1-0"), analyses.Gold.read("0-0")])
    assert found.values.tolist() == [[0.5, 0.5]]
    found = analyses.alignment_errors([TRACE], [analyses.Gold.read("0-0")], row="read")
    assert found.values.tolist() == [[0.0, 0.0]]
    found = analyses.alignment_errors([TRACE], [analyses.Gold.read("1-0")], threshold=0.6)
    assert found.values.tolist() == [[0.0, 1.0]]
    assert found.lowest == ("decoder.0.cross.weights", 0)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: analyses.alignment(TRACE, head=1), "head 1 of which layer\\? Name the point, such as decoder.0.cross"),
        (lambda: analyses.alignment(TRACE, "decoder.7.cross"), 'there is no point "decoder.7.cross": did you mean dec'),
        (
            lambda: analyses.alignment(TRACE, "decoder.0.cross", 5),
            "there is no head 5 at decoder.0.cross.weights in th",
        ),
        (lambda: analyses.alignment(TRACE, threshold=2), "a threshold is above 0 and at most 1, not 2"),
        (lambda: analyses.alignment(TRACE, row="both"), 'row is "written" or "read", not \'both\''),  # type: ignore[arg-type]
        (lambda: analyses.Gold.read("0-0 1:1"), '"1:1" is no link: write 0-1 for a sure one, 0\\?1 for a possible one'),
        (lambda: analyses.aer([[]], [analyses.Gold.read("")]), "there are no links to compare"),
        (lambda: analyses.aer([[]], []), "there are 1 sets of links and 0 alignments: expected as many"),
        (lambda: analyses.alignment_errors([], []), "there are 0 traces and 0 alignments: expected as many, at least"),
        (
            lambda: analyses.alignment(made({"encoder.0.self.weights": [[[1.0]]]})),
            "alignment needs the weights of decoder.cross: the trace holds encoder.self; record",
        ),
        (
            lambda: analyses.alignment(made({"decoder.0.cross.weights": [[[1.0]]]}, {"encoder": ["a"]})),
            "this trace does not know what was written: make it by run.look",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(call: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=f"^{sentence}"):
        call()


def alignments() -> list[list[str]]:
    path = Path(__file__).parents[1] / "alignments.tsv"
    return [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]


def test_the_sentences_aligned_by_hand_are_sound() -> None:
    run: Any = gf.load("en-de")
    rows = alignments()
    assert len(rows) == 50
    assert len({source for source, _, _ in rows}) == 50
    for source, target, links in rows:
        gold = analyses.Gold.read(links)
        counts = [
            len(tokenizer.words(tokenizer.encode(text)))
            for tokenizer, text in ((run.tokenizer, source), (run.target, target))
        ]
        for side, count in enumerate(counts):
            numbers = {link[side] for link in gold.possible}
            assert max(numbers) == count - 1, source  # the final sign is linked, and there is no word beyond
        assert {target for _, target in gold.possible} == set(range(counts[1])), source  # every German word has a link


def test_the_translator_that_ships_aligns() -> None:
    run = gf.load("en-de")
    rows = alignments()[:12]
    traces = [analyses.forced_trace(run, source, target, "decoder.*.cross") for source, target, _ in rows]
    gold = [analyses.Gold.read(links) for _, _, links in rows]
    errors = analyses.alignment_errors(traces, gold)
    assert float(errors.values.min()) < 0.25
    assert float(errors.values.max()) > 0.5  # not every head aligns
    best = [analyses.alignment(trace, *errors.lowest) for trace in traces]
    assert analyses.aer([each.links for each in best], gold) == pytest.approx(float(errors.values.min()))
