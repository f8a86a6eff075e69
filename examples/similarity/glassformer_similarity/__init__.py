"""Similarity: a score between two sentences by regression. A task, a family and a source that Glassformer finds.

B pairs in a batch, T length, D model width
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from glassformer.data import BadRow, Columns, Context, Corpus, Encode, Encoded, Report, Rows, Source, normalise
from glassformer.evaluation.judging import Judged
from glassformer.models.family import family
from glassformer.parts import Embedding, pad
from glassformer.recipe import Recipe
from glassformer.tasks.gathering import gathered
from glassformer.tasks.protocol import Learner, Loss, Tensors
from glassformer.tasks.run import Evaluation, Progress, Run
from glassformer.tasks.task import Task

PADDING = 0  # the padding of all tokenizers that Glassformer trains


class SharedWords(Source):
    """Pairs of sentences of random words; their score is the fraction of different words that both have."""

    kind: Literal["shared-words"]
    makes_splits: ClassVar[bool] = True

    def read(self, split: str, base: Path, report: Report) -> Iterator[tuple[Columns, str]]:
        rng, words = random.Random(split), [first + rest for first in "bdkmt" for rest in ("an", "el", "ir", "os")]
        for number in range(3_000 if split == "train" else 300):
            common = rng.sample(words, rng.randint(0, 5))
            one, two = ([*common, *rng.choices(words, k=3)] for _ in range(2))
            score = len({*one} & {*two}) / len({*one} | {*two})
            yield Columns((" ".join(one), " ".join(two), f"{score:.4f}")), f"{split}:{number}"


class Siamese(nn.Module):
    """Both sentences are read by the same embedding; their mean vectors are compared number by number."""

    def __init__(self, embedding: Embedding, head: nn.Module) -> None:
        super().__init__()
        self.embedding, self.head = embedding, head

    def hidden(self, first: Tensor, second: Tensor) -> Tensor:
        """What both have, and in what they differ: (B, 2 D)."""
        one, two = self._mean(first), self._mean(second)
        return torch.cat((one * two, (one - two).abs()), dim=-1)

    def _mean(self, tokens: Tensor) -> Any:
        real = (tokens != PADDING)[..., None]  # (B, T, 1)
        return (self.embedding(tokens) * real).sum(dim=1) / real.sum(dim=1)  # (B, D)


@family(answers=["score"])
def siamese(vocabulary: int, width: int = 64) -> Siamese:
    """Two sentences, one embedding, a score."""
    return Siamese(Embedding(vocabulary, width, scale=width**0.5), nn.Linear(2 * width, 1))


class ScoredPair(NamedTuple):
    """Two sentences and how similar they are."""

    first: str
    second: str
    score: float


@dataclass(frozen=True)
class ScoredBatch(Tensors):
    """Pairs of sentences, and their scores."""

    first: Tensor  # (B, T)
    second: Tensor  # (B, T)
    scores: Tensor  # (B)
    tokens: int
    targets: int
    padded_tokens: int


def squared_loss(learner: Learner, batch: ScoredBatch) -> Tensor:
    """Σ (y - ŷ)²."""
    found: Tensor = learner.head(learner.hidden(batch.first, batch.second))[:, 0]
    return (found.float() - batch.scores).square().sum()


@dataclass(frozen=True)
class Collator:
    """Makes batches of pairs: a row holds the first sentence, then the second and the bits of the score."""

    pairs: Rows

    def __call__(self, rows: Any, rng: np.random.Generator) -> ScoredBatch:
        lengths, starts = self.pairs.lengths[rows].astype(np.int64), self.pairs.starts[rows]  # (B, 2), (B)
        first, _ = gathered(self.pairs.flat, starts, lengths[:, 0], PADDING)
        second, _ = gathered(self.pairs.flat, starts + lengths[:, 0], lengths[:, 1] - 1, PADDING)
        scores = self.pairs.flat[starts + lengths.sum(axis=1) - 1].view(np.float32)
        tensor, tokens = torch.from_numpy, int(lengths.sum()) - len(rows)
        return ScoredBatch(tensor(first), tensor(second), tensor(scores), tokens, len(rows), first.size + second.size)


@dataclass(frozen=True)
class Scored(Evaluation):
    """How close predicted scores are to the true ones: the mean squared error and two correlations."""

    loss: float
    pearson: float
    spearman: float
    pairs: int


class Scorer(Run):
    """A trained model that scores pairs: `run.score([("a cat", "the cat")])`."""

    @torch.inference_mode()
    def score(self, pairs: Sequence[Sequence[Any]]) -> list[float]:
        """How similar the two sentences of each pair are."""
        texts = [[normalise(pair[side], self.recipe.data) for pair in pairs] for side in (0, 1)]
        inputs = [pad(self.tokenizer.encode_batch(each), PADDING)[0].to(self.device) for each in texts]
        return [float(each) for each in self.model.head(self.model.hidden(*inputs))[:, 0]]

    def evaluate(self, examples: Sequence[ScoredPair], progress: Progress | None = None) -> Scored:
        found, true = np.array(self.score(examples)), np.array([example[2] for example in examples])
        ranks = _ranks(found), _ranks(true)
        pearson, spearman = (float(np.corrcoef(*each)[0, 1]) for each in ((found, true), ranks))
        return Scored(float(((found - true) ** 2).mean()), pearson, spearman, len(examples))

    def judge(self, examples: Sequence[ScoredPair], progress: Progress | None = None) -> Judged:
        errors = [(found - example[2]) ** 2 for found, example in zip(self.score(examples), examples, strict=True)]
        return Judged("squared error", "lower", errors, [1.0] * len(errors))


def _ranks(values: Any) -> Any:
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[place]  # equal values share the mean of their ranks


class Similarity(Task):
    """From two sentences to a number that says how similar they are."""

    kind: Literal["similarity"]
    answer: ClassVar[str] = "score"
    scores: ClassVar[tuple[str, ...]] = ("loss", "pearson", "spearman")
    defaults: ClassVar[dict[str, dict[str, Any]]] = {"model": {"family": "siamese"}}
    unused: ClassVar[dict[str, str]] = {"decode.*": "nothing is written", "train.smoothing": "the loss is squared"}
    Example: ClassVar[type[ScoredPair]] = ScoredPair
    loss: ClassVar[Loss] = staticmethod(squared_loss)
    Run: ClassVar[type[Run]] = Scorer

    def example(self, found: Columns) -> ScoredPair:
        try:
            first, second, score = found.cells
            return ScoredPair(first, second, float(score))
        except ValueError:
            raise BadRow("no score", f"{found.cells} is not two sentences and a number") from None

    def largest_number(self, assets: Any) -> int:
        return 2**32 - 1  # the bits of a score

    def encoder(self, context: Context) -> Encode:
        def row(example: ScoredPair) -> tuple[list[int], list[int]]:
            first, second = (context.tokenizer.encode(text)[: context.max_tokens] for text in example[:2])
            return first, [*second, int(np.float32(example.score).view(np.uint32))]

        return lambda examples: Encoded.of([row(example) for example in examples])

    def collator(self, recipe: Recipe, corpus: Corpus, model: nn.Module) -> Collator:
        return Collator(corpus.splits["train"])
