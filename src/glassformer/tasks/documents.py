"""Documents: what language modelling, masked language modelling and span corruption have in common.

A document is a text without a target: the targets are made of its own tokens. All three evaluate by the loss of the
predicted tokens.

N pieces of documents
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from torch import nn

from glassformer.data import Assets, Columns, Corpus, Document, Rows
from glassformer.data.batches import Collator
from glassformer.evaluation import perplexity
from glassformer.evaluation.bootstrap import Statistic, ratio
from glassformer.evaluation.judging import Judged
from glassformer.evaluation.metrics import perplexities
from glassformer.recipe import Recipe
from glassformer.tasks.run import Evaluation, Progress
from glassformer.tasks.showing import Score
from glassformer.tasks.task import Task
from glassformer.text import Tokenizer

Pieces = NDArray[np.float64]  # (fields, N): the numbers of an evaluation, in the order of its fields, of each piece
SAMPLES = 3  # documents that are shown after training
UNUSED = {
    "data.max_ratio": "a document has no target",
    "data.long": "long documents are cut into pieces of data.max_tokens",
    "tokenizer.joint": "there is one tokenizer",
    "train.validate_sentences": "validation writes nothing: it takes the loss of all documents",
}


def defaults_with(family: str) -> dict[str, dict[str, Any]]:
    """The defaults of other sections: documents are kept as they are, line breaks and all; writing is greedy."""
    data = {"strip": False, "max_characters": 2**31 - 1}
    return {"data": data, "model": {"family": family}, "train": {"smoothing": 0.0}, "decode": {"beam": 1}}


class DocumentTask(Task):
    """The base of the tasks that learn from documents. Of a table, the first column is the text."""

    reads: ClassVar[tuple[type, ...]] = (Document, Columns)
    unused: ClassVar[Mapping[str, str]] = UNUSED
    Example: ClassVar[type[Document]] = Document

    def file_source(self, path: str, recipe: Recipe) -> dict[str, Any]:
        """A text file, cut into documents as in training."""
        return {"kind": "text", "train": path, "documents": getattr(recipe.source, "documents", "file")}

    def example(self, found: Document | Columns) -> Document:
        return found if isinstance(found, Document) else Document(found.cells[0])

    def identity(self, example: Document) -> bytes:
        """The text, with an empty target."""
        return f"{example.text}\0".encode()

    def scorable(self, examples: Sequence[Any], assets: Assets) -> list[Any]:
        """All documents, if one of them has a token to predict; else none."""
        tokenizer = assets.tokenizers[0]
        keeps = self.keeps(tokenizer)
        return [*examples] if any(keeps(tokenizer.encode(example[0])) for example in examples) else []

    def keeps(self, tokenizer: Tokenizer) -> Callable[[Sequence[int]], bool]:
        """What tells whether there is something to predict in a text of some tokens."""
        return bool

    def collate(self, rows: Rows, tokenizer: Tokenizer) -> Collator[Any]:
        """What makes batches of any rows."""
        raise NotImplementedError

    def collator(self, recipe: Recipe, corpus: Corpus, model: nn.Module) -> Collator[Any]:
        return self.collate(corpus.splits["train"], corpus.assets.tokenizers[0])


@dataclass(frozen=True)
class DocumentEvaluation(Evaluation):
    """How well the tokens of some documents are predicted: -log p of all of them, how many they are.

    Samples for intervals are drawn of the pieces that the model reads at a time: there may be one document only.
    """

    nats: float
    tokens: int
    texts: int = field(default=1, kw_only=True)
    pieces: Pieces | None = field(default=None, kw_only=True, compare=False)

    @classmethod
    def of(cls, pieces: Pieces, texts: int) -> Self:
        """The evaluation that consists of some pieces, of so many texts."""
        nats, *counts = pieces.sum(axis=1).tolist()
        return cls(nats, *map(round, counts), pieces=pieces, texts=texts)

    def resampled(self) -> tuple[int, dict[str, Statistic]]:
        if self.pieces is None:
            return 0, {}
        loss = ratio(self.pieces[0], self.pieces[1])
        return self.pieces.shape[1], {"loss": loss, "perplexity": lambda counts: perplexities(loss(counts))}

    @property
    def loss(self) -> float:  # type: ignore[override]
        """-log p of a token, on average."""
        return self.nats / self.tokens

    @property
    def perplexity(self) -> float:
        """Between how many equally likely tokens the model hesitates."""
        return perplexity(self.loss)

    @property
    def weighed(self) -> tuple[float, float]:
        """The score that comparisons take the mean of, times its weight; and the weight."""
        return self.nats, float(self.tokens)

    def summary(self) -> dict[str, float]:
        return {"loss": self.loss, "perplexity": self.perplexity}

    def facts(self) -> dict[str, Any]:
        return {"texts": self.texts, **self.summary()}

    def table(self) -> list[Score]:
        loss = f"(loss {self.loss:.4f}{self.interval('loss', '.4f')})"
        return [self.score("perplexity", self.perplexity, ".3f", unit="per token", note=loss)]

    def lines(self) -> list[str]:
        return [f"{self.texts:,} texts", *(f"{each.name:14} {each}" for each in self.table())]


def judge_each(
    score: str,
    evaluate: Callable[[Sequence[Any]], DocumentEvaluation],
    examples: Sequence[Any],
    progress: Progress | None,
) -> Judged:
    """A score that is better the lower it is, of each document by itself."""
    found = []
    for number, example in enumerate(examples, start=1):
        found.append(evaluate([example]).weighed)
        if progress is not None:
            progress(number, len(examples))
    return Judged(score, "lower", [value for value, _ in found], [weight for _, weight in found])
