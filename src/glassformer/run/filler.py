"""A run that fills gaps: a text with hidden words in, the words that may stand there out.

B texts, T length, D model width, V vocabulary, N gaps
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.data import Batches, normalise
from glassformer.data.encoding import document_encoder
from glassformer.errors import InputError
from glassformer.evaluation import perplexity
from glassformer.models import EncoderOnly
from glassformer.recipe import MaskedTask, Recipe
from glassformer.run.held_out import Progress, device_of, held_out, in_batches, shown
from glassformer.tasks import MaskCollator, Masker
from glassformer.tasks.gathering import Pairs
from glassformer.text import MASKS, Tokenizer

SEED = 0  # which tokens of held-out texts are hidden: always the same


@dataclass(frozen=True)
class Word:
    """A word that may stand in a gap, and how likely it is."""

    word: str
    probability: float


@dataclass(frozen=True)
class Filled:
    """A text with the likeliest word in each gap, and the likeliest words for each, likeliest first."""

    text: str
    gaps: list[list[Word]]


@dataclass(frozen=True)
class MaskedEvaluation:
    """How a run does on texts with hidden tokens: the loss of one, and the share that it guesses right."""

    loss: float
    accuracy: float
    hidden: int  # tokens

    @property
    def perplexity(self) -> float:
        """Between how many equally likely tokens it hesitates."""
        return perplexity(self.loss)


class Filler:
    """A trained model that guesses hidden words: `run.fill(["The [MASK] sat on the mat."])`."""

    def __init__(self, recipe: Recipe, model: EncoderOnly, tokenizer: Tokenizer, path: Path | None = None) -> None:
        if not isinstance(recipe.task, MaskedTask):
            raise InputError(f"this recipe is for {recipe.task.kind}, not for masked language modelling")
        self.recipe, self.model, self.tokenizer, self.path, self.task = recipe, model, tokenizer, path, recipe.task

    def pairs(self, split: str = "test") -> list[tuple[str, str]]:
        """The texts that were kept out of its training, each with an empty target: "valid" or "test"."""
        return held_out(self.path, split)

    def with_model(self, model: nn.Module) -> Filler:
        """The same with another model."""
        return Filler(self.recipe, model, self.tokenizer, self.path)  # type: ignore[arg-type]

    @torch.inference_mode()
    def fill(self, texts: Sequence[str], top: int = 5, progress: Progress | None = None) -> list[Filled]:
        """The `top` likeliest words for each `[MASK]`, or `<mask>`, of each text, in their order.

        Words are the tokenizer's, which may be parts of words. Several gaps know nothing of each other.
        """
        if isinstance(texts, str):
            raise InputError("fill takes a list of texts: put the text into brackets")
        rows = [self._read(text) for text in texts]
        answers: dict[int, Filled] = {}
        budget, filler = self.recipe.train.batch_tokens, self.tokenizer.pad
        for some, tokens, keep in in_batches(rows, budget, filler, self.model, progress):
            gaps = (tokens == self.tokenizer.mask) & keep  # (B, T)
            likely = torch.split(self._likely(tokens, keep, gaps), gaps.sum(dim=1).tolist())  # (N, V) of each text
            answers |= {row: self._filled(texts[row], each, top) for row, each in zip(some, likely, strict=True)}
        return [answers[row] for row in range(len(rows))]

    def check(self, text: str) -> str:
        """The text, if it has a gap and is no longer than the model reads."""
        self._read(text)
        return text

    def measure(self, examples: Sequence[tuple[str, str]], most: int) -> dict[str, float]:
        """What validation tells."""
        found = self.evaluate(examples)
        return {"loss": found.loss, "perplexity": found.perplexity, "accuracy": found.accuracy}

    @torch.inference_mode()
    def evaluate(self, examples: Sequence[tuple[str, str]], progress: Progress | None = None) -> MaskedEvaluation:
        """Hide tokens of some texts, always the same ones, and see how well they are guessed."""
        texts = [normalise(text, self.recipe.data) for text, _ in examples]
        made = document_encoder("masked-language-modelling", self.tokenizer, self.recipe.data.max_tokens)(texts, [])
        if not len(made.lengths):
            raise InputError("there is nothing to evaluate: no text")
        rows = Pairs(made.flat, made.lengths.astype("int32"))
        hide = Masker(self.tokenizer, self.task.share)
        batches = Batches(rows, self.recipe.train.batch_tokens, MaskCollator(rows, hide), SEED, shuffle=False)
        loss = hits = hidden = 0.0
        for number, batch in enumerate(batches, start=1):
            here = batch.to(device_of(self.model))
            logits = self.model.head(self.model.hidden(here.text, here.mask)[here.asked]).float()  # (N, V)
            right = here.right[here.asked]  # (N)
            loss += float(F.cross_entropy(logits, right, reduction="sum"))
            hits += int((logits.argmax(dim=1) == right).sum())
            hidden += len(right)
            if progress is not None:
                progress(number, batches.batches_per_epoch)
        return MaskedEvaluation(loss / hidden, hits / hidden, int(hidden))

    def _read(self, text: str) -> list[int]:
        """A text with gaps as framed tokens."""
        mask, most = self.tokenizer.mask, self.recipe.data.max_tokens
        ids = self.tokenizer.encode_with(normalise(text, self.recipe.data), self._names)
        if mask not in ids:
            raise InputError(f"there is no gap in {shown(text)}: write [MASK] where a word is missing")
        if len(ids) + 2 > most:
            raise InputError(f"{shown(text)} has {len(ids) + 2} tokens with start and end: the model reads {most}")
        return [self.tokenizer.start, *ids, self.tokenizer.end]

    def _likely(self, tokens: Tensor, keep: Tensor, gaps: Tensor) -> Tensor:
        """How likely each token is in each gap, (N, V); special tokens are no words."""
        logits: Tensor = self.model.head(self.model.hidden(tokens, keep)[gaps]).float()  # (N, V)
        logits[:, self.tokenizer.size :] = -torch.inf  # rows that only fill the table
        logits[:, [token for token in self.tokenizer.special if token < logits.shape[1]]] = -torch.inf
        return logits.softmax(dim=1).cpu()

    @property
    def _names(self) -> dict[str, int]:
        """The ways to write a gap."""
        return dict.fromkeys(MASKS, self.tokenizer.mask)

    def _filled(self, text: str, likely: Tensor, top: int) -> Filled:
        values, order = likely.topk(min(top, likely.shape[1]), dim=1)  # (N, top)
        gaps = [
            [Word(self._word(token), share) for token, share in zip(tokens, shares, strict=True) if share > 0]
            for tokens, shares in zip(order.tolist(), values.tolist(), strict=True)
        ]
        whole = self.tokenizer.filled(normalise(text, self.recipe.data), self._names, order[:, :1].tolist())
        return Filled(whole, gaps)

    def _word(self, token: int) -> str:
        """A token as a word: without the space that it may bring along, unless it is nothing else."""
        text = self.tokenizer.decode([token])
        return text.strip() or text
