"""A run that mends texts: stretches are missing, and it writes them. What it learned so is a beginning for others.

B texts, S source length, T target length
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

from glassformer.data import Batches, normalise
from glassformer.data.encoding import document_encoder
from glassformer.decoding import Limits, greedy
from glassformer.errors import InputError
from glassformer.evaluation import perplexity
from glassformer.models import EncoderDecoder
from glassformer.recipe import CorruptionTask, Recipe
from glassformer.run.held_out import Progress, device_of, held_out, in_batches, shown
from glassformer.tasks import CorruptCollator, Corruption, spans_of, translation_loss
from glassformer.tasks.gathering import Pairs
from glassformer.text import SENTINEL, Tokenizer
from glassformer.training.objective import Objective

SEED = 0  # which stretches of held-out texts are cut out: always the same
USUAL = CorruptionTask(kind="span-corruption")


@dataclass(frozen=True)
class Denoised:
    """How a run does on texts with stretches missing: the loss of a token of what should be written."""

    loss: float
    tokens: int

    @property
    def perplexity(self) -> float:
        """Between how many equally likely tokens it hesitates."""
        return perplexity(self.loss)


class Denoiser:
    """A trained model that writes what is missing: `run.restore(["Thank you <extra_id_0> me to your party"])`."""

    def __init__(self, recipe: Recipe, model: EncoderDecoder, tokenizer: Tokenizer, path: Path | None = None) -> None:
        self.recipe, self.model, self.tokenizer, self.path = recipe, model, tokenizer, path

    def pairs(self, split: str = "test") -> list[tuple[str, str]]:
        """The texts that were kept out of its training, each with an empty target: "valid" or "test"."""
        return held_out(self.path, split)

    def with_model(self, model: nn.Module) -> Denoiser:
        """The same with another model."""
        return Denoiser(self.recipe, model, self.tokenizer, self.path)  # type: ignore[arg-type]

    @torch.inference_mode()
    def restore(self, texts: Sequence[str], progress: Progress | None = None) -> list[str]:
        """Each text with what the model writes in place of `<extra_id_0>`, `<extra_id_1>` and so on."""
        if isinstance(texts, str):
            raise InputError("restore takes a list of texts: put the text into brackets")
        rows = [self._read(text) for text in texts]
        answers: dict[int, str] = {}
        budget, filler = self.recipe.train.batch_tokens, self.tokenizer.pad
        for some, source, keep in in_batches(rows, budget, filler, self.model, progress):
            for row, found in zip(some, greedy(self.model, source, keep, limits=self._limits), strict=True):
                answers[row] = self._mended(texts[row], rows[row], found.tokens)
        return [answers[row] for row in range(len(rows))]

    def check(self, text: str) -> str:
        """The text, if it has a gap and is no longer than what the model has learned to read."""
        self._read(text)
        return text

    def corrupted(self, text: str) -> str:
        """A text with stretches cut out, as in training."""
        ids = self.tokenizer.encode(normalise(text, self.recipe.data))[: self.recipe.data.max_tokens]
        source, _ = self._corruption(ids, np.random.default_rng(SEED))
        names = {token: name for name, token in self._names.items()}
        return "".join(names.get(token) or self.tokenizer.decode([token]) for token in source)

    def measure(self, examples: Sequence[tuple[str, str]], most: int) -> dict[str, float]:
        """What validation tells."""
        found = self.evaluate(examples)
        return {"loss": found.loss, "perplexity": found.perplexity}

    @torch.inference_mode()
    def evaluate(self, examples: Sequence[tuple[str, str]], progress: Progress | None = None) -> Denoised:
        """Cut stretches out of some texts, always the same ones, and see how surprising they are."""
        texts = [normalise(text, self.recipe.data) for text, _ in examples]
        made = document_encoder("span-corruption", self.tokenizer, self.recipe.data.max_tokens)(texts, [])
        if not len(made.lengths):
            raise InputError("there is nothing to evaluate: no text of two tokens")
        rows = Pairs(made.flat, made.lengths.astype("int32"))
        collator = CorruptCollator(rows, self.tokenizer, self._corruption)
        batches = Batches(rows, self.recipe.train.batch_tokens, collator, SEED, shuffle=False)
        objective = Objective(self.model, 0.0, translation_loss)
        loss, tokens = 0.0, 0
        for number, batch in enumerate(batches, start=1):
            loss += float(objective(batch.to(device_of(self.model))))
            tokens += batch.answers
            if progress is not None:
                progress(number, batches.batches_per_epoch)
        return Denoised(loss / tokens, tokens)

    @property
    def _names(self) -> dict[str, int]:
        """The sentinels as they are written."""
        return {SENTINEL.format(number): token for number, token in enumerate(self.tokenizer.sentinels)}

    def _mended(self, text: str, ids: list[int], written: list[int]) -> str:
        """A text with what was written for its gaps; all else stays as it is."""
        spans = spans_of(written, self.tokenizer.sentinels)
        gaps = [spans.get(token, []) for token in ids if token in self._names.values()]
        return self.tokenizer.filled(normalise(text, self.recipe.data), self._names, gaps)

    def _read(self, text: str) -> list[int]:
        """A text with gaps as tokens."""
        names, most = self._names, self.recipe.data.max_tokens
        ids = self.tokenizer.encode_with(normalise(text, self.recipe.data), names)
        if not set(names.values()) & set(ids):
            raise InputError(f"there is no gap in {shown(text)}: write {SENTINEL.format(0)} where words are missing")
        if len(ids) > most:
            raise InputError(f"{shown(text)} has {len(ids)} tokens: the model reads {most}")
        return [*ids, *self.tokenizer.framed("")]

    @property
    def _corruption(self) -> Corruption:
        task = self.recipe.task if isinstance(self.recipe.task, CorruptionTask) else USUAL
        return Corruption.by(self.tokenizer, task.share, task.mean)

    @property
    def _limits(self) -> Limits:
        never = sorted({self.tokenizer.pad, self.tokenizer.start, self.tokenizer.unknown} - {self.tokenizer.end})
        return Limits(
            self.tokenizer.start, self.tokenizer.end, max_length=self.recipe.decode.max_length, suppress=never
        )
