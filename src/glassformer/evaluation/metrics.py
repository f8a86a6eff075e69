"""Scores of outputs against references: BLEU and chrF by sacreBLEU with its signature, exact match, edits, and ROUGE.

An output may have several references, as a source may have several right translations: sacreBLEU's multi-reference
scores, exact match with any of them, the edits to the nearest, and the best ROUGE.

    edits = 100 · Σ edit distance to the nearest reference / Σ words of that reference

Words have spaces between them: that is the phoneme error rate of pronunciations, the word error rate of transcripts.
ROUGE by Google's library only sees words of the letters a to z and digits: for languages with other letters, use chrF.

N outputs, A words of the one, B of the other
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassformer.errors import ConfigurationError, InputError
from glassformer.evaluation.bleu import bleu_for
from glassformer.evaluation.bootstrap import Counts, Statistic, ratio

ROUGES = ("rouge1", "rouge2", "rougeL")
References = Sequence[str | Sequence[str]]  # of each output: one, or several


@dataclass(frozen=True)
class Scores:
    """Similarity of outputs to their references. BLEU and chrF are from 0 to 100, exact match from 0 to 1.

    Edits are a percentage that is better the lower it is; it may be above 100.
    """

    bleu: float
    chrf: float
    exact: float
    edits: float
    bleu_signature: str  # scores with the same signature can be compared
    chrf_signature: str


def score(outputs: Sequence[str], references: References) -> Scores:
    """Compare outputs with their references."""
    from sacrebleu.metrics.chrf import CHRF

    lists = _lists(outputs, references)
    bleu, chrf = bleu_for(lists), CHRF()
    distances, words = edits(outputs, lists)
    return Scores(
        bleu=bleu.corpus_score(list(outputs), _streams(lists)).score,
        chrf=chrf.corpus_score(list(outputs), _streams(lists)).score,
        exact=sum(output in some for output, some in zip(outputs, lists, strict=True)) / len(outputs),
        edits=100 * sum(distances) / max(sum(words), 1),
        bleu_signature=str(bleu.get_signature()),
        chrf_signature=str(chrf.get_signature()),
    )


def score_statistics(outputs: Sequence[str], references: References) -> dict[str, Statistic]:
    """The same scores of samples of the outputs."""
    from sacrebleu.metrics.chrf import CHRF

    lists = _lists(outputs, references)
    distances, words = edits(outputs, lists)
    return {
        "bleu": _of_corpus(bleu_for(lists), outputs, lists),
        "chrf": _of_corpus(CHRF(), outputs, lists),
        "exact": ratio([float(output in some) for output, some in zip(outputs, lists, strict=True)]),
        "edits": ratio([100.0 * each for each in distances], words),
    }


def _of_corpus(metric: Any, outputs: Sequence[str], references: list[list[str]]) -> Statistic:
    """A score of sacreBLEU's, which is computed from sums of the counts of each output."""
    table = np.array(metric._extract_corpus_statistics(list(outputs), _streams(references)), np.int64)  # (N, counts)

    def found(drawn: Counts) -> NDArray[np.float64]:
        return np.array([metric._compute_score_from_stats(row).score for row in (drawn @ table).tolist()])

    return found


def edits(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> tuple[list[int], list[int]]:
    """The edit distance in words of each output to its nearest reference, the longest such, and the words of that."""
    found = []
    for output, some in zip(outputs, references, strict=True):
        words = [each.split() for each in some]
        found.append(min((edit_distance(output.split(), each), -len(each)) for each in words))
    return [distance for distance, _ in found], [-negative for _, negative in found]


def edit_distance(first: Sequence[str], second: Sequence[str]) -> int:
    """How many words must be inserted, deleted or replaced to make one of the other.

    d(a, b) is the distance of the first a words to the first b words; a row of the table is computed at once, since
    the least of d(a, b - 1) + 1, d(a, b - 2) + 2, … is a running minimum of d(a, b) - b.
    """
    if first == second:
        return 0
    numbers = {word: number for number, word in enumerate({*first, *second})}
    one, two = (np.array([numbers[word] for word in words], np.int64) for words in (first, second))
    along = np.arange(len(two) + 1)
    row = along  # (B + 1)
    for done, word in enumerate(one, start=1):
        step = np.minimum(row[1:] + 1, row[:-1] + (two != word))
        row = np.minimum.accumulate(np.concatenate(([done], step)) - along) + along
    return int(row[-1])


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


def rouge_of_each(outputs: Sequence[str], references: References) -> dict[str, list[float]]:
    """Each ROUGE of each output by itself, with the reference that gives the highest; without stemming."""
    check_rouge()
    from rouge_score.rouge_scorer import RougeScorer

    scorer, lists = RougeScorer(list(ROUGES)), _lists(outputs, references)
    found = [scorer.score_multi(some, output) for output, some in zip(outputs, lists, strict=True)]
    return {name: [100 * each[name].fmeasure for each in found] for name in ROUGES}


def rouge(outputs: Sequence[str], references: References) -> Rouge:
    """The mean over all outputs."""
    return Rouge(**{name: sum(each) / len(each) for name, each in rouge_of_each(outputs, references).items()})


def _lists(outputs: Sequence[str], references: References) -> list[list[str]]:
    """The references of each output."""
    if len(outputs) != len(references):
        raise InputError(f"there are {len(outputs)} outputs but {len(references)} references")
    if not outputs:
        raise InputError("there is nothing to score: no outputs and no references")
    return [[each] if isinstance(each, str) else list(each) for each in references]


def _streams(references: list[list[str]]) -> list[list[Any]]:
    """The first references of all outputs, the second, and so on; None where an output has fewer."""
    return [list(each) for each in zip_longest(*references)]


def perplexity(loss: float) -> float:
    """e to the power of the loss: the number of equally likely tokens that would give the same loss."""
    return math.exp(min(loss, 700))


def perplexities(losses: NDArray[np.float64]) -> NDArray[np.float64]:
    """The same for many losses."""
    found: NDArray[np.float64] = np.exp(np.minimum(losses, 700))
    return found
