"""Masked language modelling: some tokens are hidden, and the model predicts them from those around.

As in BERT, of the chosen tokens 80 % become the mask, 10 % any other token, and 10 % stay: the model does not know
which of the tokens that it reads are right, so it has to understand them all.

B texts in a batch, T length, D model width, V vocabulary, N gaps, or pieces of documents
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from glassformer.data import Context, Encode, Rows
from glassformer.data.encoding import DocumentEncoder
from glassformer.evaluation.bootstrap import Statistic, ratio
from glassformer.recipe.values import Fraction
from glassformer.tasks.documents import UNUSED, DocumentEvaluation, DocumentTask, defaults_with
from glassformer.tasks.encoding import TextEncoder
from glassformer.tasks.gaps import Filled, GapFiller, Word
from glassformer.tasks.gathering import Choice, TokenBatch, Tokens, both_sides, token_loss
from glassformer.tasks.protocol import Loss
from glassformer.tasks.run import Progress, Run, check_list, in_batches
from glassformer.tasks.showing import Score, one_line
from glassformer.tasks.task import encodes_for
from glassformer.text import MASKS, Tokenizer

MASKED, REPLACED = 0.8, 0.1  # fractions of the chosen tokens; the others stay
SHOWN = 12  # words of a document that are shown


def chosen(may: Choice, ratio: float, rng: np.random.Generator) -> Choice:
    """A fraction of the tokens (B, T) that may be chosen, and at least one in each text that has any."""
    count = np.maximum(np.rint(ratio * may.sum(axis=1)), 1)
    luck = np.where(may, rng.random(may.shape), np.inf)
    found: Choice = may & (luck.argsort(axis=1).argsort(axis=1) < count[:, None])
    return found


def hidden_at(text: Tokens, choice: Choice, mask: int, vocabulary: int, rng: np.random.Generator) -> Tokens:
    """The text (B, T) with its chosen tokens masked, replaced by any of the vocabulary, or left."""
    fate = rng.random(text.shape)
    others = rng.integers(vocabulary, size=text.shape)
    shown = np.where(choice & (fate < MASKED + REPLACED), others, text)
    return np.where(choice & (fate < MASKED), mask, shown)


@dataclass(frozen=True)
class MaskCollator:
    """Makes batches of texts with start and end, in which other tokens are hidden each time: special tokens never."""

    pairs: Rows
    tokenizer: Tokenizer
    mask_ratio: float

    def __call__(self, rows: NDArray[Any], rng: np.random.Generator) -> TokenBatch:
        tokenizer = self.tokenizer
        text, real, _ = both_sides(self.pairs, rows, tokenizer.pad)  # (B, T)
        choice = chosen(real & ~np.isin(text, sorted(tokenizer.special)), self.mask_ratio, rng)
        shown = hidden_at(text, choice, tokenizer.mask, tokenizer.size, rng)
        return TokenBatch(
            text=torch.from_numpy(shown),
            labels=torch.from_numpy(text),
            label_mask=torch.from_numpy(choice),
            documents=None,
            tokens=int(real.sum()),
            targets=int(choice.sum()),
            mask=torch.from_numpy(real),
        )


@dataclass(frozen=True)
class MaskedEvaluation(DocumentEvaluation):
    """How well hidden tokens are predicted: -log p of all of them, how many they are, and how many are right."""

    hits: int

    @property
    def accuracy(self) -> float:
        """The fraction of the hidden tokens for which the likeliest token is the right one."""
        return self.hits / self.tokens

    def resampled(self) -> tuple[int, dict[str, Statistic]]:
        count, statistics = super().resampled()
        return count, statistics | ({} if self.pieces is None else {"accuracy": ratio(self.pieces[2], self.pieces[1])})

    def summary(self) -> dict[str, float]:
        return {**super().summary(), "accuracy": self.accuracy}

    def facts(self) -> dict[str, Any]:
        return {**super().facts(), "hidden": self.tokens}

    def table(self) -> list[Score]:
        hidden = f"of {self.tokens:,} hidden tokens"
        return [*super().table(), self.score("accuracy", self.accuracy, ".2%", unit=hidden)]


class Filler(GapFiller[MaskedEvaluation], TextEncoder):
    """A trained model that predicts hidden words: `run.fill(["The [MASK] sat on the mat."])`."""

    opens_with: ClassVar[str] = "AutoModelForMaskedLM and AutoTokenizer"
    exports: ClassVar[dict[str, Any]] = {"frame": "both", "encodes": True, "splits_special": False, "mask": True}
    gap: ClassVar[str] = MASKS[1]
    stands_for: ClassVar[str] = "a word is"
    hides: ClassVar[str] = "with a token to hide"

    @torch.inference_mode()
    def fill(self, texts: Sequence[str], top: int = 5, progress: Progress | None = None) -> list[Filled]:
        """The `top` likeliest words for each `[MASK]`, or `<mask>`, of each text, in their order.

        Words are the tokenizer's, which may be parts of words. Each gap is filled without regard to the others.
        """
        check_list(texts, "fill")
        rows = [self.read_gaps(text) for text in texts]
        answers: dict[int, Filled] = {}
        for some, tokens, keep in in_batches(rows, self, progress):
            gaps = (tokens == self.tokenizer.mask) & keep  # (B, T)
            likely = torch.split(self._likely(tokens, keep, gaps), gaps.sum(dim=1).tolist())  # (N, V) of each text
            answers |= {row: self._filled(texts[row], each, top) for row, each in zip(some, likely, strict=True)}
        return [answers[row] for row in range(len(rows))]

    def read(self, text: str) -> list[int]:
        """A text as the tokens that the model reads: start and end around it, the mask in its gaps."""
        start, end = self.tokenizer.start, self.tokenizer.end
        return [start, *self.encoded(text, around=(start, end)), end]

    def output_of(self, text: str) -> str:
        return self.fill([text])[0].text if self.tokenizer.mask in self.read(text) else ""

    @property
    def names(self) -> dict[str, int]:
        return dict.fromkeys(MASKS, self.tokenizer.mask)

    def _likely(self, tokens: Tensor, keep: Tensor, gaps: Tensor) -> Tensor:
        """How likely each token is in each gap, (N, V); special tokens are no words."""
        logits: Tensor = self.model.head(self.model.hidden(tokens, keep)[gaps]).float()  # (N, V)
        logits[:, self.tokenizer.size :] = -torch.inf  # rows beyond the tokenizer's vocabulary
        logits[:, [token for token in self.tokenizer.special if token < logits.shape[1]]] = -torch.inf
        return logits.softmax(dim=1).cpu()

    def _filled(self, text: str, likely: Tensor, top: int) -> Filled:
        values, order = likely.topk(min(top, likely.shape[1]), dim=1)  # (N, top)
        gaps = [
            [Word(self._word(token), value) for token, value in zip(*gap, strict=True) if value > 0]
            for gap in zip(order.tolist(), values.tolist(), strict=True)
        ]
        parts = self.tokenizer.filled_parts(self.normalised(text), self.names, order[:, :1].tolist())
        return Filled("".join(parts), gaps, parts)

    def _word(self, token: int) -> str:
        """A token as a word: without the space that may come before it, unless it is nothing else."""
        text = self.tokenizer.decode([token])
        return text.strip() or text

    @torch.inference_mode()
    def measured(self, examples: Sequence[tuple[Any, ...]], progress: Progress | None = None) -> MaskedEvaluation:
        found = [np.zeros((3, 0))]
        for batch in self.batches(examples, progress):
            logits = self.model.head(self.model.hidden(batch.text, batch.mask)[batch.label_mask]).float()  # (N, V)
            labels, rows = batch.labels[batch.label_mask], batch.label_mask.nonzero()[:, 0].cpu()  # (N), (N)
            nats, hits = F.cross_entropy(logits, labels, reduction="none"), logits.argmax(dim=1) == labels
            of_tokens = (each.cpu().double() for each in (nats, torch.ones_like(nats), hits))
            found.append(np.stack([torch.bincount(rows, each, len(batch.text)).numpy() for each in of_tokens]))
        return MaskedEvaluation.of(np.concatenate(found, axis=1), len(examples))

    def gapped(self, examples: Sequence[tuple[Any, ...]]) -> Iterator[str]:
        """The beginnings of documents, each with a gap in the middle."""
        room = self.recipe.data.max_tokens // 2
        for example in examples:
            words = example[0].split()[:SHOWN]
            words[len(words) // 2 : len(words) // 2 + 1] = [self.gap]
            text = " ".join(words)
            if len(self.tokenizer.encode(text)) < room:
                yield text

    def next_commands(self, examples: Sequence[tuple[Any, ...]]) -> list[str]:
        text = one_line(next(self.gapped(examples), self.gap))
        return [f"fill --run RUN {shlex.quote(text)}", "evaluate --run RUN"]


class MaskedTask(DocumentTask):
    """From a text with hidden tokens to what they are, as BERT learns first."""

    kind: Literal["masked-language-modelling"] = "masked-language-modelling"
    mask_ratio: Annotated[Fraction, Field(gt=0)] = Field(
        0.15, description="fraction of the tokens that are hidden and predicted"
    )

    answer: ClassVar[str] = "words"
    scores: ClassVar[tuple[str, ...]] = ("loss", "accuracy")
    defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = defaults_with("bert")
    unused: ClassVar[Mapping[str, str]] = UNUSED | {"decode.*": "nothing is written"}
    drawn: ClassVar[set[str]] = {"mask_ratio"}
    adds_tokens: ClassVar[bool] = True
    least: ClassVar[int] = 3  # start, a token, end
    loss: ClassVar[Loss] = staticmethod(token_loss)
    Run: ClassVar[type[Run]] = Filler

    def add_special_tokens(self, tokenizer: Tokenizer) -> None:
        tokenizer.add_mask()

    def encoder(self, context: Context) -> Encode:
        """Documents in pieces within the limit, each with a start and an end."""
        return DocumentEncoder(context.tokenizer, context.max_tokens, True, self.keeps(context.tokenizer))

    def keeps(self, tokenizer: Tokenizer) -> Callable[[Sequence[int]], bool]:
        """Special tokens, such as the unknown, are never hidden: there must be others."""
        special = tokenizer.special
        return lambda ids: not special.issuperset(ids)

    def collate(self, rows: Rows, tokenizer: Tokenizer) -> MaskCollator:
        return MaskCollator(rows, tokenizer, self.mask_ratio)

    @classmethod
    def adopts(cls, model: nn.Module) -> bool:
        """An encoder with a head for words."""
        return encodes_for(model, cls.answer)
