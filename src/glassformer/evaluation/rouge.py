"""ROUGE by Google's library: how much of a reference's words, pairs of words, and order a summary has.

The library counts runs of the letters a to z and of digits, and nothing else: where a language is written otherwise,
chrF says more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from glassformer.errors import ConfigurationError, InputError

KINDS = ("rouge1", "rouge2", "rougeL")


@dataclass(frozen=True)
class Rouge:
    """The F1 of shared words, of shared pairs of words, and of the longest common sequence, from 0 to 100."""

    rouge1: float
    rouge2: float
    rougeL: float  # noqa: N815  # as everybody writes it


def check_rouge() -> None:
    """Refuse to begin what needs ROUGE where its library is not installed."""
    try:
        import rouge_score.rouge_scorer  # noqa: F401
    except ImportError:
        raise ConfigurationError("ROUGE needs a library: pip install 'glassformer[tasks]'") from None


def rouge(outputs: Sequence[str], references: Sequence[str]) -> Rouge:
    """Compare outputs with one reference each; the mean over all, words as they are, not their stems."""
    check_rouge()
    from rouge_score.rouge_scorer import RougeScorer

    if len(outputs) != len(references):
        raise InputError(f"there are {len(outputs)} outputs but {len(references)} references")
    if not outputs:
        raise InputError("there is nothing to score: no output and no reference")
    scorer = RougeScorer(list(KINDS))
    found = [scorer.score(reference, output) for output, reference in zip(outputs, references, strict=True)]
    return Rouge(*(100 * sum(each[kind].fmeasure for each in found) / len(found) for kind in KINDS))
