"""Scores of outputs against references: BLEU and chrF by sacreBLEU with its signature, and exact match."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from glassformer.errors import InputError


@dataclass(frozen=True)
class Scores:
    """How near outputs are to their references. BLEU and chrF run from 0 to 100, exact match from 0 to 1."""

    bleu: float
    chrf: float
    exact: float
    bleu_signature: str  # what another paper must have in common for its BLEU to be comparable
    chrf_signature: str


def score(outputs: Sequence[str], references: Sequence[str]) -> Scores:
    """Compare outputs with one reference each."""
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    if len(outputs) != len(references):
        raise InputError(f"there are {len(outputs)} outputs but {len(references)} references")
    if not outputs:
        raise InputError("there is nothing to score: no output and no reference")
    bleu, chrf = BLEU(force=True), CHRF()  # text with a space before its full stop is no reason to complain
    return Scores(
        bleu=bleu.corpus_score(list(outputs), [list(references)]).score,
        chrf=chrf.corpus_score(list(outputs), [list(references)]).score,
        exact=sum(output == reference for output, reference in zip(outputs, references, strict=True)) / len(outputs),
        bleu_signature=str(bleu.get_signature()),
        chrf_signature=str(chrf.get_signature()),
    )


def perplexity(loss: float) -> float:
    """e to the loss: how many equally likely tokens the model hesitates between."""
    return math.exp(min(loss, 700))
