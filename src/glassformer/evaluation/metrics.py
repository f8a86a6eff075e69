"""Scores of outputs against references: BLEU and chrF by sacreBLEU with its signature, exact match, and ROUGE.

ROUGE by Google's library only sees words of the letters a to z and digits: for languages with other letters, use chrF.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from glassformer.errors import ConfigurationError, InputError

ROUGES = ("rouge1", "rouge2", "rougeL")


@dataclass(frozen=True)
class Scores:
    """Similarity of outputs to their references. BLEU and chrF are from 0 to 100, exact match from 0 to 1."""

    bleu: float
    chrf: float
    exact: float
    bleu_signature: str  # scores with the same signature can be compared
    chrf_signature: str


def score(outputs: Sequence[str], references: Sequence[str]) -> Scores:
    """Compare outputs with one reference each."""
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    _check(outputs, references)
    bleu, chrf = BLEU(force=True), CHRF()  # no warning about tokenised text
    return Scores(
        bleu=bleu.corpus_score(list(outputs), [list(references)]).score,
        chrf=chrf.corpus_score(list(outputs), [list(references)]).score,
        exact=sum(output == reference for output, reference in zip(outputs, references, strict=True)) / len(outputs),
        bleu_signature=str(bleu.get_signature()),
        chrf_signature=str(chrf.get_signature()),
    )


@dataclass(frozen=True)
class Rouge:
    """The F1 of shared words, of shared pairs of words, and of the longest common sequence, from 0 to 100."""

    rouge1: float
    rouge2: float
    rougeL: float  # noqa: N815  # the usual spelling


def check_rouge() -> None:
    """Raise an error if the library for ROUGE is not installed."""
    try:
        import rouge_score.rouge_scorer  # noqa: F401
    except ImportError:
        raise ConfigurationError("ROUGE needs rouge-score: pip install 'glassformer[tasks]'") from None


def rouge(outputs: Sequence[str], references: Sequence[str]) -> Rouge:
    """The mean over outputs with one reference each, without stemming."""
    check_rouge()
    from rouge_score.rouge_scorer import RougeScorer

    _check(outputs, references)
    scorer = RougeScorer(list(ROUGES))
    found = [scorer.score(reference, output) for output, reference in zip(outputs, references, strict=True)]
    return Rouge(*(100 * sum(each[name].fmeasure for each in found) / len(found) for name in ROUGES))


def _check(outputs: Sequence[str], references: Sequence[str]) -> None:
    if len(outputs) != len(references):
        raise InputError(f"there are {len(outputs)} outputs but {len(references)} references")
    if not outputs:
        raise InputError("there is nothing to score: no outputs and no references")


def perplexity(loss: float) -> float:
    """e to the power of the loss: the number of equally likely tokens that would give the same loss."""
    return math.exp(min(loss, 700))
