"""BLEU as sacreBLEU computes it, for references of any length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def bleu_for(references: Sequence[Sequence[str]]) -> Any:
    """sacreBLEU's BLEU, without its warning about tokenised text.

    BLEU counts sequences of one to four words. Where no reference has four words, it would be 0 even if every output is
    right: then it counts the sequences that there are, which its signature says (eff:yes).
    """
    from sacrebleu.metrics.bleu import BLEU

    plain = BLEU(force=True)
    long = any(len(plain.tokenizer(each).split()) >= plain.max_ngram_order for some in references for each in some)
    return plain if long else BLEU(force=True, effective_order=True)
