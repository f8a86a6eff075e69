"""A run that goes on with texts, and says how surprised it is by others.

B rows, T length, D model width
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from glassformer.data import normalise
from glassformer.decoding import Sampler
from glassformer.errors import InputError
from glassformer.evaluation import perplexity
from glassformer.models import DecoderOnly
from glassformer.parts import pad
from glassformer.recipe import Recipe
from glassformer.run.held_out import Progress, by_length, device_of, held_out
from glassformer.run.run import Run, Translation
from glassformer.tasks import sequence_loss
from glassformer.text import Tokenizer


@dataclass(frozen=True)
class Surprise:
    """How likely some texts are, their ends included: -log p of them all, and what they are made of."""

    nats: float
    tokens: int
    words: int  # between spaces
    bytes: int  # in UTF-8

    @property
    def loss(self) -> float:
        """-log p of a token."""
        return self.nats / self.tokens

    @property
    def perplexity(self) -> float:
        """Of a token: between how many equally likely ones the model hesitates."""
        return perplexity(self.loss)

    @property
    def word_perplexity(self) -> float:
        """Of a word: the same for any tokenizer."""
        return perplexity(self.nats / self.words)

    @property
    def bits_per_byte(self) -> float:
        """What a byte of text would cost if it were packed with the model's help: the same for any tokenizer."""
        return self.nats / math.log(2) / self.bytes

    def facts(self) -> dict[str, float]:
        """All of this by name."""
        return {
            "loss": self.loss,
            "perplexity": self.perplexity,
            "word_perplexity": self.word_perplexity,
            "bits_per_byte": self.bits_per_byte,
        }


class LanguageModel:
    """A trained language model: `model.generate(["Once upon a time"])`."""

    def __init__(self, recipe: Recipe, model: DecoderOnly, tokenizer: Tokenizer, path: Path | None = None) -> None:
        self.recipe, self.model, self.tokenizer, self.path = recipe, model, tokenizer, path

    def pairs(self, split: str = "test") -> list[tuple[str, str]]:
        """The texts that were kept out of its training, each with an empty target: "valid" or "test"."""
        return held_out(self.path, split)

    def with_model(self, model: nn.Module) -> LanguageModel:
        """The same with another model."""
        return LanguageModel(self.recipe, model, self.tokenizer, self.path)  # type: ignore[arg-type]

    def generate(
        self,
        prompts: Sequence[str],
        length: int | None = None,
        sampler: Sampler | None = None,
        beam: int = 1,
        progress: Progress | None = None,
    ) -> list[Translation]:
        """Each prompt and what follows it: the likeliest words, or what a `sampler` draws."""
        return self._writer.generate(prompts, length, sampler, beam, progress)

    def check(self, prompt: str) -> str:
        """The prompt, if the model has room for it and for something more."""
        return self._writer.check(prompt)

    def stream(self, text: str, sampler: Sampler | None = None, length: int | None = None) -> Iterator[str]:
        """A text and what follows it, piece by piece as it is written."""
        return self._writer.stream(text, sampler, length)

    def measure(self, examples: Sequence[tuple[str, str]], most: int) -> dict[str, float]:
        """What validation tells."""
        return self.evaluate(examples).facts()

    @torch.inference_mode()
    def evaluate(self, examples: Sequence[tuple[str, str]], progress: Progress | None = None) -> Surprise:
        """How surprising some texts are.

        A text longer than the model reads is read in windows that overlap by half: all of its tokens count once, and
        before each the model has seen the half of a window at least, or all there is.
        """
        texts = [normalise(text, self.recipe.data) for text, _ in examples]
        if not any(text.strip() for text in texts):
            raise InputError("there is nothing to evaluate: no text")
        limit, nats, done = self.recipe.data.max_tokens, 0.0, 0
        rows = [row for ids in self.tokenizer.encode_batch(texts) for row in self._windows(ids, limit)]
        tokens = sum(len(ids) - 1 - seen for ids, seen in rows)
        for some in by_length([len(ids) for ids, _ in rows], self.recipe.train.batch_tokens):
            nats += float(self._nats([rows[row] for row in some]))
            done += len(some)
            if progress is not None:
                progress(done, len(rows))
        words, size = (sum(map(count, texts)) for count in (_words, _bytes))
        return Surprise(nats, tokens, words, size)

    def _windows(self, ids: list[int], length: int) -> Iterator[tuple[list[int], int]]:
        """A text in windows of tokens to read and one more to be asked for, and how many answers of each are known."""
        framed = [self.tokenizer.start, *ids, self.tokenizer.end]
        for begin, end, seen in sliding(len(framed) - 1, length):
            yield framed[begin : end + 1], seen

    def _nats(self, rows: list[tuple[list[int], int]]) -> Tensor:
        """-log p of what is asked for in some windows."""
        tokens, keep = (each.to(device_of(self.model)) for each in pad([ids for ids, _ in rows], self.tokenizer.pad))
        seen = torch.tensor([seen for _, seen in rows], device=tokens.device)
        places = torch.arange(tokens.shape[1] - 1, device=tokens.device)
        asked = keep[:, 1:] & (places >= seen[:, None])  # (B, T)
        hidden = self.model.hidden(tokens[:, :-1], keep[:, :-1])  # (B, T, D)
        return sequence_loss(hidden, tokens[:, 1:], asked, int(asked.sum()), self.model.head)

    @property
    def _writer(self) -> Run:
        return Run(self.recipe, self.model, self.tokenizer, self.tokenizer, self.path)


def sliding(total: int, length: int) -> Iterator[tuple[int, int, int]]:
    """Windows on so many places: from where, to where, and how many of the first were in the window before."""
    begin = end = 0
    while end < total:
        known, end = end, min(total, max(begin + length, end + (length + 1) // 2))
        begin = max(0, end - length)
        yield begin, end, known - begin


def _words(text: str) -> int:
    return max(1, len(text.split()))


def _bytes(text: str) -> int:
    return len(text.encode())
