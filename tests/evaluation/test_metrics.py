"""Scores are sacreBLEU's own, signature and all."""

import logging
import math

import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from glassformer.errors import InputError
from glassformer.evaluation import perplexity, score

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
