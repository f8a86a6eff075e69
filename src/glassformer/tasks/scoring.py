"""Scores of runs that write: what each wrote for a source, compared with all that would have been right.

N different sources
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from glassformer.evaluation import Rouge, Scores, perplexity, score
from glassformer.evaluation.bootstrap import Statistic, ratio
from glassformer.evaluation.metrics import perplexities, rouge_of_each, score_statistics
from glassformer.tasks.run import Evaluation
from glassformer.tasks.showing import Score


@dataclass(frozen=True)
class WrittenEvaluation(Evaluation):
    """How a run does on some pairs: the output for each different source, its references, and the loss of all pairs.

    `scores` compare each output with all targets of its source.
    """

    nouns: ClassVar[tuple[str, str]] = ("pairs", "sources")  # what is counted: with repeated sources, and without

    sources: list[str]  # N
    outputs: list[str]  # N
    references: list[list[str]]  # N
    pairs: int
    losses: NDArray[np.float64]  # (2, N), -log p of all targets of a source, and how many tokens they have
    rouge: Rouge | None = None  # if it was asked for

    @cached_property
    def scores(self) -> Scores:
        """BLEU, chrF, exact match and edits."""
        return score(self.outputs, self.references)

    @property
    def loss(self) -> float:  # type: ignore[override]
        """-log p of a target token, on average."""
        return mean_loss(self.losses)

    @property
    def perplexity(self) -> float:
        """e to the loss: between how many equally likely tokens the model hesitates."""
        return perplexity(self.loss)

    def resampled(self) -> tuple[int, dict[str, Statistic]]:
        loss, rouges = ratio(*self.losses), {}
        if self.rouge is not None:
            rouges = {name: ratio(each) for name, each in rouge_of_each(self.outputs, self.references).items()}
        own = {"loss": loss, "perplexity": lambda counts: perplexities(loss(counts))}
        return len(self.sources), {**own, **score_statistics(self.outputs, self.references), **rouges}

    def summary(self) -> dict[str, float]:
        scores = {name: getattr(self.scores, name) for name in ("bleu", "chrf", "exact", "edits")}
        return {"loss": self.loss, "perplexity": self.perplexity, **scores, **self._rouge}

    def facts(self) -> dict[str, Any]:
        """The scores with their signatures; how many references a source has at least, and at most."""
        counts = [len(some) for some in self.references]
        all_, different = self.nouns
        own = {all_: self.pairs, different: len(self.sources), "references": [min(counts), max(counts)]}
        return own | {"loss": self.loss, "perplexity": self.perplexity} | asdict(self.scores) | self._rouge

    def table(self) -> list[Score]:
        scores = self.scores
        loss = f"(loss {self.loss:.4f}{self.interval('loss', '.4f')} per target token)"
        edits = "per 100 words of the nearest reference"
        return [
            self.score("exact match", scores.exact, ".2%", "exact"),
            self.score("BLEU", scores.bleu, ".2f", "bleu", note=scores.bleu_signature),
            self.score("chrF", scores.chrf, ".2f", "chrf", note=scores.chrf_signature),
            self.score("edits", scores.edits, ".2f", note=edits),
            *(self.score(name.replace("rouge", "ROUGE-"), each, ".2f", name) for name, each in self._rouge.items()),
            self.score("perplexity", self.perplexity, ".3f", note=loss),
        ]

    def lines(self) -> list[str]:
        return [self._size, *(f"{each.name:12} {each}" for each in self.table())]

    @property
    def _size(self) -> str:
        pairs, sources = self.nouns
        if self.pairs == len(self.sources):
            return f"{self.pairs:,} {pairs}"
        least, most = min(map(len, self.references)), max(map(len, self.references))
        each = f"{least} to {most} references" if least < most else f"{most} reference{'s' * (most > 1)}"
        return f"{self.pairs:,} {pairs}, {len(self.sources):,} {sources}, {each} each"

    @property
    def _rouge(self) -> dict[str, float]:
        return asdict(self.rouge) if self.rouge is not None else {}


def mean_loss(losses: NDArray[np.float64]) -> float:
    """The loss of a token, of losses and numbers of tokens, (2, N)."""
    return float(losses[0].sum() / max(losses[1].sum(), 1))
