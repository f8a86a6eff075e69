"""Scores are sacreBLEU's own, signature and all."""

import logging
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from glassformer.errors import InputError
from glassformer.evaluation import perplexity, score
from glassformer.evaluation.metrics import edit_distance, score_statistics

OUTPUTS = ["the cat sat on the mat", "a dog barks", "it rains in Köln today , again", ""]
REFERENCES = ["the cat sat on a mat", "a dog barks", "it rains in Köln , again", "nothing"]


def test_scores_are_those_of_sacrebleu() -> None:
    found = score(OUTPUTS, REFERENCES)
    bleu, chrf = BLEU(), CHRF()
    assert found.bleu == bleu.corpus_score(OUTPUTS, [REFERENCES]).score
    assert found.chrf == chrf.corpus_score(OUTPUTS, [REFERENCES]).score
    assert found.bleu_signature == str(bleu.get_signature())
    assert found.chrf_signature == str(chrf.get_signature())
    assert "tok:13a" in found.bleu_signature
    assert found.exact == 0.25


def test_the_same_is_perfect_and_what_shares_nothing_is_worthless() -> None:
    text = ["one two three four five", "six seven eight nine ten"]
    assert (score(text, text).bleu, score(text, text).chrf, score(text, text).exact) == pytest.approx((100, 100, 1))
    assert score(text, ["11 12 13 14 15"] * 2).exact == 0
    assert score(text, ["11 12 13 14 15"] * 2).bleu < 5


def test_which_is_output_and_which_reference_makes_a_difference() -> None:
    assert score(["a b c d"], ["a b c d e f g h"]).bleu != score(["a b c d e f g h"], ["a b c d"]).bleu


def test_a_space_before_the_full_stop_is_no_reason_to_complain(caplog: pytest.LogCaptureFixture) -> None:
    text = ["this is a sentence ."] * 200
    with caplog.at_level(logging.WARNING):
        assert score(text, text).bleu == pytest.approx(100)
    assert caplog.records == []


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(InputError, match="2 outputs but 1 references"):
        score(["a", "b"], ["a"])
    with pytest.raises(InputError, match="nothing to score"):
        score([], [])


def test_perplexity_is_e_to_the_loss_and_always_a_number() -> None:
    assert perplexity(0) == 1
    assert perplexity(math.log(8)) == pytest.approx(8)
    assert math.isfinite(perplexity(1e6))


SEVERAL = [
    ["the cat sat on a mat", "a cat is sitting on the mat"],
    ["a dog barks"],
    ["it rains in Köln , again"],
    ["nothing"],
]


def test_several_references_are_those_of_sacrebleu() -> None:
    found = score(["a cat is sitting on the mat", *OUTPUTS[1:]], SEVERAL)
    outputs, streams = (
        ["a cat is sitting on the mat", *OUTPUTS[1:]],
        [[each[0] for each in SEVERAL], [SEVERAL[0][1], None, None, None]],
    )
    bleu, chrf = BLEU(force=True), CHRF()
    assert found.bleu == bleu.corpus_score(outputs, streams).score  # type: ignore[arg-type]
    assert found.chrf == chrf.corpus_score(outputs, streams).score  # type: ignore[arg-type]
    assert found.bleu_signature == str(bleu.get_signature())
    assert "nrefs:var" in found.bleu_signature
    assert "nrefs:var" in found.chrf_signature
    assert found.exact == 0.5  # the second reference counts
    assert score(OUTPUTS, [[each] for each in REFERENCES]) == score(OUTPUTS, REFERENCES)
    assert "nrefs:1" in score(OUTPUTS, REFERENCES).bleu_signature


def test_edits_by_hand() -> None:
    assert score(["HH AH L OW"], ["HH EH L OW"]).edits == 25  # one of four replaced
    assert score(["HH AH L OW"], [["HH EH L OW", "HH AH L OW"]]).edits == 0
    assert score(["a b", "c"], ["a b c", "d e f g h"]).edits == 75  # 1 and 5 of 3 and 5 words
    assert score(["a b c d"], ["x"]).edits == 400
    assert score([""], ["a b"]).edits == 100
    assert score(["a x"], [["a", "a b"]]).edits == 50  # both are one edit away: the longer one counts


def slowly(first: list[str], second: list[str]) -> int:
    if not first or not second:
        return len(first) + len(second)
    rest = slowly(first[1:], second[1:]) + (first[0] != second[0])
    return min(rest, slowly(first[1:], second) + 1, slowly(first, second[1:]) + 1)


words = st.lists(st.sampled_from("abc"), max_size=5)


@given(words, words)
def test_the_edit_distance_is_the_least_number_of_edits(first: list[str], second: list[str]) -> None:
    assert edit_distance(first, second) == slowly(first, second)


@pytest.mark.parametrize("references", [REFERENCES, SEVERAL])
def test_a_sample_of_all_outputs_once_has_the_same_scores(references: list[str]) -> None:
    found, whole = score(OUTPUTS, references), np.ones((1, len(OUTPUTS)), np.int64)
    for name, statistic in score_statistics(OUTPUTS, references).items():
        assert statistic(whole) == pytest.approx([getattr(found, name)])
    twice = score_statistics(OUTPUTS, references)["bleu"](np.array([[2, 0, 1, 1]]))
    rows = [0, 0, 2, 3]
    assert twice == pytest.approx([score([OUTPUTS[row] for row in rows], [references[row] for row in rows]).bleu])


def test_short_targets_that_are_all_right_have_the_highest_bleu() -> None:
    """BLEU counts sequences of four words: of targets with fewer it said 0, beside an exact match of 100 %."""
    words = ["one", "two words", "three small words"]
    for right in (words[:1], words[:2], words):
        found = score(right, right)
        assert found.exact == 1
        assert found.bleu == pytest.approx(100)
        assert "eff:yes" in found.bleu_signature
        assert score_statistics(right, right)["bleu"](np.ones((1, len(right)), np.int64)) == pytest.approx(100)
    assert score(["one", "three"], ["one", "two"]).bleu == pytest.approx(50)
    assert "eff:no" in score([*words, "one of four words"], [*words, "one of five words"]).bleu_signature
