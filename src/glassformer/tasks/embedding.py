"""Embedding: texts as vectors, learned from pairs of texts that belong together, or that are as alike as a score says.

For a pair, the other texts of the batch are wrong answers. With cosines c and a temperature t, both ways:

    loss = - Σ_i [log softmax_j(c(a_i, b_j) / t)_i + log softmax_j(c(a_j, b_i) / t)_i] / 2

Where a third column gives scores from -1 to 1, the loss is Σ_i (c(a_i, b_i) - score_i)².

B pairs in a batch, T length, D model width, N pairs, C different candidates
"""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from glassformer.data import Assets, BadRow, Columns, Context, Corpus, Encoded, Rows
from glassformer.data.cleaning import folded
from glassformer.data.textfiles import first_lines
from glassformer.errors import InputError
from glassformer.evaluation.bootstrap import Statistic, ratio
from glassformer.evaluation.correlation import spearman, spearman_statistic
from glassformer.evaluation.judging import Judged
from glassformer.interop.huggingface import Checkpoint, Exported
from glassformer.interop.sentence_transformers import sentence_files, sentence_settings
from glassformer.looking.trace import Trace
from glassformer.recipe import Recipe
from glassformer.recipe.values import Number, Switch
from glassformer.tasks.encoding import Pooling, TextEncoder, pooled
from glassformer.tasks.gathering import gathered
from glassformer.tasks.losses import class_loss
from glassformer.tasks.protocol import Learner, Loss, Tensors
from glassformer.tasks.run import Evaluation, Progress, Run
from glassformer.tasks.showing import WIDEST, Reply, Sample, Score, one_line
from glassformer.tasks.task import Task, encodes_for

TOGETHER = 64  # pairs whose texts are candidates for each other where a loss is evaluated
CHUNK = 1024  # rows of similarities at a time


class TextsAlike(NamedTuple):
    """Two texts that belong together; or two, and a score that says how alike they are."""

    first: str
    second: str
    scores: tuple[float, ...] = ()  # none, or one


@dataclass(frozen=True)
class AlikeBatch(Tensors):
    """Pairs of texts to learn from together."""

    first: Tensor  # (B, T)
    first_mask: Tensor  # (B, T), True where there is a token
    second: Tensor  # (B, T)
    second_mask: Tensor  # (B, T)
    same_first: Tensor  # (B, B), True where another pair has the same first text
    same_second: Tensor  # (B, B)
    scores: Tensor | None  # (B)
    pooling: str
    temperature: float
    tokens: int  # without padding

    @property
    def targets(self) -> int:
        """One a pair."""
        return len(self.first)

    @property
    def padded_tokens(self) -> int:
        """All tokens of all texts, padding included."""
        return self.first.numel() + self.second.numel()


def alike_loss(learner: Learner, batch: AlikeBatch) -> Tensor:
    """The summed loss of the pairs: by the other texts of the batch, or by the scores."""
    first = pooled(learner.hidden(batch.first, batch.first_mask), batch.first_mask, batch.pooling)  # (B, D)
    second = pooled(learner.hidden(batch.second, batch.second_mask), batch.second_mask, batch.pooling)  # (B, D)
    one, two = F.normalize(first.float(), dim=1), F.normalize(second.float(), dim=1)
    if batch.scores is not None:
        return ((one * two).sum(dim=1) - batch.scores).square().sum()
    logits = one @ two.T / batch.temperature  # (B, B)
    return contrastive(logits, batch.same_first, batch.same_second, learner.smoothing)


def contrastive(logits: Tensor, same_first: Tensor, same_second: Tensor, smoothing: float = 0.0) -> Tensor:
    """The summed loss of similarities (B, B) whose diagonal is right, both ways; equal texts are no wrong answers."""
    right = torch.arange(len(logits), device=logits.device)
    other = ~torch.eye(len(logits), dtype=torch.bool, device=logits.device)
    forth = logits.masked_fill(other & (same_second | same_first), -1e9)
    back = logits.T.masked_fill(other & (same_second | same_first), -1e9)
    return (class_loss(forth, right, smoothing) + class_loss(back, right, smoothing)) / 2


@dataclass(frozen=True)
class AlikeCollator:
    """Makes batches of pairs: a row holds the first text, then the second and, of scored pairs, a float's bits."""

    pairs: Rows
    pad: int
    pooling: str
    temperature: float
    scored: bool

    def __call__(self, rows: NDArray[Any], rng: np.random.Generator) -> AlikeBatch:
        lengths, starts = self.pairs.lengths[rows].astype(np.int64), self.pairs.starts[rows]  # (B, 2), (B)
        scored = int(self.scored)
        first, first_mask = gathered(self.pairs.flat, starts, lengths[:, 0], self.pad)
        second, second_mask = gathered(self.pairs.flat, starts + lengths[:, 0], lengths[:, 1] - scored, self.pad)
        scores = None
        if self.scored:
            bits = self.pairs.flat[starts + lengths.sum(axis=1) - 1].astype(np.uint32)
            scores = torch.from_numpy(bits.view(np.float32))
        return AlikeBatch(
            first=torch.from_numpy(first),
            first_mask=torch.from_numpy(first_mask),
            second=torch.from_numpy(second),
            second_mask=torch.from_numpy(second_mask),
            same_first=_same(first),
            same_second=_same(second),
            scores=scores,
            pooling=self.pooling,
            temperature=self.temperature,
            tokens=int(lengths.sum()) - scored * len(rows),
        )


def _same(tokens: NDArray[np.int64]) -> Tensor:
    """Which rows of tokens are equal, (B, B)."""
    _, kind = np.unique(tokens, axis=0, return_inverse=True)
    numbers = torch.from_numpy(kind.reshape(-1))
    return numbers[:, None] == numbers


@dataclass(frozen=True)
class AlikeEvaluation(Evaluation):
    """How well texts are found by their vectors, or how well cosines follow scores.

    `ranks` are the places at which the right text of each pair stands among all candidates, 1 is the first;
    `cosines` and `true` are those of scored pairs.
    """

    losses: NDArray[np.float64]  # (N)
    ranks: NDArray[np.int64]  # (N), or none
    candidates: int = 0
    nearest: list[str] = field(default_factory=list)  # of each pair's first text
    cosines: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))  # (N), or none
    true: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))  # (N), or none

    @property
    def loss(self) -> float:  # type: ignore[override]
        """The mean loss of a pair."""
        return float(self.losses.mean())

    def resampled(self) -> tuple[int, dict[str, Statistic]]:
        if len(self.true):
            return len(self.true), {"loss": ratio(self.losses), "spearman": spearman_statistic(self.cosines, self.true)}
        hits, reciprocal = (self.ranks == 1).astype(float), 1 / self.ranks
        return len(self.ranks), {"accuracy": ratio(hits), "mrr": ratio(reciprocal)}

    def summary(self) -> dict[str, float]:
        if len(self.true):
            return {"loss": self.loss, "spearman": spearman(self.cosines, self.true)}
        return {"loss": self.loss, "accuracy": float((self.ranks == 1).mean()), "mrr": float((1 / self.ranks).mean())}

    def facts(self) -> dict[str, Any]:
        """The scores, and of how many pairs they are."""
        return {
            "pairs": len(self.losses),
            **({"candidates": self.candidates} if len(self.ranks) else {}),
            **self.summary(),
        }

    def table(self) -> list[Score]:
        found = self.summary()
        if len(self.true):
            return [self.score("Spearman", found["spearman"], ".4f", "spearman", note=f"(loss {self.loss:.4f})")]
        return [
            self.score("accuracy", found["accuracy"], ".2%", unit=f"found first of {self.candidates:,} texts"),
            self.score("MRR", found["mrr"], ".4f", "mrr", note=f"(loss {self.loss:.4f})"),
        ]

    def lines(self) -> list[str]:
        return [f"{len(self.losses):,} pairs", *(f"{each.name:9} {each}" for each in self.table())]


class Embedder(TextEncoder):
    """A trained model that makes vectors of texts: `run.embed(["a cat"])`, (1, D)."""

    opens_with: ClassVar[str] = "SentenceTransformer of sentence-transformers, and AutoModel and AutoTokenizer"
    exports: ClassVar[dict[str, Any]] = {"frame": "both", "encodes": True}

    def evaluate(self, examples: Sequence[tuple[Any, ...]], progress: Progress | None = None) -> AlikeEvaluation:
        """Find each pair's second text by its first among all second texts; or compare cosines with scores."""
        if not examples:
            raise InputError("there is nothing to evaluate: no pair of texts")
        texts = list(dict.fromkeys(text for example in examples for text in example[:2]))
        numbers = {text: number for number, text in enumerate(texts)}
        vectors = torch.from_numpy(self.embed(texts, normalised=True, progress=progress))  # (texts, D)
        first, second = (torch.tensor([numbers[example[side]] for example in examples]) for side in (0, 1))
        cosines = (vectors[first] * vectors[second]).sum(dim=1).double().numpy()
        if all(len(example) > 2 and example[2] for example in examples):
            true = np.array([example[2][0] for example in examples], np.float64)
            return AlikeEvaluation((cosines - true) ** 2, np.zeros(0, np.int64), cosines=cosines, true=true)
        ranks, nearest = _ranked(vectors, first, second)
        candidates = len({*second.tolist()})
        return AlikeEvaluation(self._losses(vectors, first, second), ranks, candidates, [texts[row] for row in nearest])

    def _losses(self, vectors: Tensor, first: Tensor, second: Tensor) -> NDArray[np.float64]:
        """The loss of each pair, (N), with those beside it for candidates."""
        found = []
        for begin in range(0, len(first), TOGETHER):
            one, two = first[begin : begin + TOGETHER], second[begin : begin + TOGETHER]
            logits = vectors[one] @ vectors[two].T / self.task.temperature
            total = contrastive(logits, one[:, None] == one, two[:, None] == two)
            found += [float(total) / len(one)] * len(one)
        return np.array(found)

    def judge(self, examples: Sequence[tuple[Any, ...]], progress: Progress | None = None) -> Judged:
        found = self.evaluate(examples, progress)
        if len(found.true):
            return Judged("squared error", "lower", found.losses.tolist(), [1.0] * len(found.losses))
        return Judged("MRR (%)", "higher", (100 / found.ranks).tolist(), [1.0] * len(found.ranks))

    def samples(self, examples: Sequence[tuple[Any, ...]], found: AlikeEvaluation) -> list[Sample]:
        """Texts, and the nearest of all second texts; or pairs, their cosine and their score."""
        made = []
        for row in self.rows_shown(examples):
            first, second, *_ = examples[row]
            if len(found.true):
                made.append(
                    Sample(f"{first} | {second}", f"{found.cosines[row]:.2f}", f"{found.true[row]:.2f}", called="score")
                )
            else:
                made.append(Sample(first, found.nearest[row], second, bool(found.ranks[row] == 1), whole=True))
        return made

    def read(self, text: str) -> list[int]:
        return self.read_alone([text])[0][0]

    def reply(self, text: str, trace: Trace) -> Reply:
        """Nothing is written: what there is to know is how long the vector is."""
        return Reply(note=f"The text becomes a vector of {self._width:,} numbers.")

    def suggestion(self, example: Any) -> str | None:
        return " ".join(self.task.texts(example, 0)[0].split()) or None

    def cuts(self, text: str) -> bool:
        return bool(self.read_alone([text])[1])

    def next_commands(self, examples: Sequence[tuple[Any, ...]]) -> list[str]:
        text = shlex.quote(one_line(min((example[0] for example in examples), key=len), WIDEST))
        return [f"embed --run RUN {text}", "index my-texts.txt --run RUN --out my-index", f"search my-index {text}"]

    def exported(self) -> Exported:
        """With the files in which sentence-transformers has its pooling."""
        found = super().exported()
        files = sentence_files(self.task.pooling, self.task.normalised, self.recipe.data.max_tokens, self._width)
        return replace(found, files=files)

    @property
    def _width(self) -> int:
        return int(self.model.encoder.embedding.width)


def _ranked(vectors: Tensor, first: Tensor, second: Tensor) -> tuple[NDArray[np.int64], list[int]]:
    """The place of each first text's best right text among all second ones, (N), and the number of the nearest."""
    candidates = torch.unique(second)  # (C)
    right_of: dict[int, set[int]] = {}
    for one, two in zip(first.tolist(), second.tolist(), strict=True):
        right_of.setdefault(one, set()).add(two)
    place = {number: column for column, number in enumerate(candidates.tolist())}
    ranks, nearest = [], []
    for begin in range(0, len(first), CHUNK):
        rows = first[begin : begin + CHUNK]
        similar = vectors[rows] @ vectors[candidates].T  # (…, C)
        nearest += candidates[similar.argmax(dim=1)].tolist()
        for row, number in zip(similar, rows.tolist(), strict=True):
            right = [place[each] for each in right_of[number]]
            best = row[right].max()
            ranks.append(1 + int((row >= best).sum()) - int((row[right] >= best).sum()))  # equally near ones come first
    return np.array(ranks, np.int64), nearest


class EmbeddingTask(Task):
    """From a text to a vector, such that texts that belong together have vectors of like direction."""

    kind: Literal["embedding"]
    pooling: Pooling = Field(
        "mean", description="a text's vector: the mean of its tokens' vectors, or the first token's"
    )
    normalised: Switch = Field(True, description="vectors have the length 1")
    temperature: Annotated[Number, Field(gt=0, le=100)] = Field(
        0.05, description="what cosines are divided by in the loss: the lower, the more the nearest wrong texts count"
    )

    answer: ClassVar[str] = "vectors"
    scores: ClassVar[tuple[str, ...]] = ("loss", "accuracy", "mrr", "spearman")
    defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "data": {"max_characters": 100_000},  # a long text is cut, not dropped
        "model": {"family": "bert"},
        "train": {"smoothing": 0.0},
    }
    unused: ClassVar[dict[str, str]] = {
        "data.max_ratio": "texts that belong together may have any lengths",
        "data.long": "long texts are truncated",
        "tokenizer.joint": "there is one tokenizer",
        "train.validate_sentences": "all validation examples are scored",
        "decode.*": "nothing is written",
    }
    framed: ClassVar[bool] = True
    least: ClassVar[int] = 3  # start, a token, end
    drawn: ClassVar[set[str]] = {"pooling", "normalised", "temperature"}
    Example: ClassVar[type[TextsAlike]] = TextsAlike
    loss: ClassVar[Loss] = staticmethod(alike_loss)
    Run: ClassVar[type[Run]] = Embedder

    def file_source(self, path: str, recipe: Recipe) -> dict[str, Any]:
        """Two texts a line, or two and a score, as the first line of the file has."""
        tabs = next(iter(first_lines(Path(path), 1)), "").count("\t")
        return {"kind": "tsv", "train": path, "columns": tuple(range(2 + (tabs > 1)))}

    def example(self, found: Columns) -> TextsAlike:
        """Two texts, or two texts and a score."""
        if not 2 <= len(found.cells) <= 3:
            raise BadRow("wrong column count", f"{len(found.cells)} columns, not two texts, or two and a score")
        first, second, *given = found.cells
        try:
            scores = tuple(float(each) for each in given)
        except ValueError:
            raise BadRow("no score", f"{given[0]!r} is not a number") from None
        if not all(math.isfinite(each) and -1 <= each <= 1 for each in scores):
            raise BadRow("no score", f"the score {given[0]} is not from -1 to 1")
        return TextsAlike(first, second, scores)

    def texts(self, example: TextsAlike, side: int) -> tuple[str, ...]:
        return example[:2]

    def split_key(self, example: TextsAlike) -> bytes:
        """The first text: what else belongs to it is in the same split."""
        return folded(example.first)

    def largest_number(self, assets: Assets) -> int:
        """The bits of a score."""
        return 2**32 - 1

    def encode(self, examples: list[TextsAlike], context: Context) -> Encoded:
        """Both texts framed; after the second, the bits of the score, if there is one."""
        sides = [
            context.tokenizer.frame_within(texts, context.max_tokens)
            for texts in ([[each.first] for each in examples], [[each.second] for each in examples])
        ]
        bits = [[int(np.float32(score).view(np.uint32)) for score in example.scores] for example in examples]
        (first, cut), (second, also_cut) = sides
        rows = [(one, [*two, *score]) for one, two, score in zip(first, second, bits, strict=True)]
        return Encoded.of(rows, Counter(truncate=len({*cut, *also_cut})))

    def collator(self, recipe: Recipe, corpus: Corpus, model: nn.Module) -> AlikeCollator:
        scored = recipe.source.columns_read() == 3
        pad = corpus.assets.tokenizers[0].pad
        return AlikeCollator(corpus.splits["train"], pad, self.pooling, self.temperature, scored)

    @classmethod
    def adopts(cls, model: nn.Module) -> bool:
        """An encoder without a head."""
        return encodes_for(model, cls.answer)

    def kept_of(self, checkpoint: Checkpoint) -> dict[str, dict[str, Any]]:
        """How sentence-transformers makes a vector of a text, if it has made the checkpoint."""
        found = sentence_settings(checkpoint.folder) or {}
        most = {key: found.pop(key) for key in ("max_tokens",) if key in found}
        return {"task": found, "data": most}
