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
from glassformer.decoding import Limits, Sampler, beam_search, collect, greedy, most_likely, stream
from glassformer.errors import InputError
from glassformer.evaluation import perplexity
from glassformer.models import DecoderOnly
from glassformer.parts import pack
from glassformer.recipe import Recipe
from glassformer.run.held_out import Progress, by_length, held_out
from glassformer.run.written import Translation, inputs, limits, pieces, places, tokens_of, translation
from glassformer.tasks import sequence_loss
from glassformer.text import Habits, Tokenizer, own_habits


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

    def __init__(
        self,
        recipe: Recipe,
        model: DecoderOnly,
        tokenizer: Tokenizer,
        path: Path | None = None,
        habits: Habits | None = None,
    ) -> None:
        self.recipe, self.model, self.tokenizer, self.path = recipe, model, tokenizer, path
        self.habits = habits or own_habits(tokenizer, tokenizer, alone=True)

    def pairs(self, split: str = "test") -> list[tuple[str, str]]:
        """The texts that were kept out of its training, each with an empty target: "valid" or "test"."""
        return held_out(self.path, split)

    def with_model(self, model: nn.Module) -> LanguageModel:
        """The same with another model."""
        return LanguageModel(self.recipe, model, self.tokenizer, self.path, self.habits)  # type: ignore[arg-type]

    def generate(
        self,
        prompts: Sequence[str],
        length: int | None = None,
        sampler: Sampler | None = None,
        beam: int = 1,
        progress: Progress | None = None,
    ) -> list[Translation]:
        """Each prompt and what follows it: the likeliest words, or what a `sampler` draws."""
        if isinstance(prompts, str):
            raise InputError("generate takes a list of prompts: put the prompt into brackets")
        model, size = pack(self.model), self.recipe.decode.batch
        tokens = [self._prompt(prompt) for prompt in prompts]
        rooms = [self._room(len(ids), length) for ids in tokens]
        answers: dict[int, Translation] = {}
        for room in dict.fromkeys(each.max_length for each in rooms):  # no long prompt ends another's output early
            order = [row for row, each in enumerate(rooms) if each.max_length == room]
            for rows in (order[first : first + size] for first in range(0, len(order), size)):
                given, limit = inputs([tokens[row] for row in rows], self.habits, self.model), rooms[rows[0]]
                if sampler is not None:
                    found = collect(stream(model, *given, limits=limit, choose=sampler), len(rows), limit.end)
                elif beam > 1:
                    found = [best for best, *_ in beam_search(model, *given, limits=limit, width=beam)]
                else:
                    found = greedy(model, *given, limits=limit)
                for row, each in zip(rows, found, strict=True):
                    answers[row] = translation(each, self.tokenizer, tokens[row])
                if progress is not None:
                    progress(len(answers), len(tokens))
        return [answers[row] for row in range(len(prompts))]

    def check(self, prompt: str) -> str:
        """The prompt, if the model has room for it and for something more."""
        self._room(len(self._prompt(prompt)), None)
        return prompt

    def stream(self, text: str, sampler: Sampler | None = None, length: int | None = None) -> Iterator[str]:
        """A text and what follows it, piece by piece as it is written."""
        ids = self._prompt(text)
        given, room = inputs([ids], self.habits, self.model), self._room(len(ids), length)
        choose = most_likely if sampler is None else sampler
        return pieces(stream(self.model, *given, limits=room, choose=choose), self.tokenizer, ids)

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
        framed = [self.habits.start, *ids, self.habits.end]
        for begin, end, seen in sliding(len(framed) - 1, length):
            yield framed[begin : end + 1], seen

    def _nats(self, rows: list[tuple[list[int], int]]) -> Tensor:
        """-log p of what is asked for in some windows."""
        tokens, keep = inputs([ids for ids, _ in rows], self.habits, self.model)  # (B, T)
        seen = torch.tensor([seen for _, seen in rows], device=tokens.device)
        places = torch.arange(tokens.shape[1] - 1, device=tokens.device)
        asked = keep[:, 1:] & (places >= seen[:, None])  # (B, T)
        hidden = self.model.hidden(tokens[:, :-1], keep[:, :-1])  # (B, T, D)
        return sequence_loss(hidden, tokens[:, 1:], asked, int(asked.sum()), self.model.head)

    def _prompt(self, text: str) -> list[int]:
        """A prompt as tokens, after what texts begin with; an empty one is a start in any case."""
        ids = tokens_of(text, self.tokenizer, self.recipe.data)
        return [*self.habits.before, *ids, *self.habits.after] or [self.habits.start]

    def _room(self, prompt: int, length: int | None) -> Limits:
        """The limits of an output of some length after a prompt of so many tokens: it ends where positions end."""
        length, last = self.recipe.decode.max_length if length is None else length, places(self.model)
        if last is not None:
            if prompt >= last:
                raise InputError(f"a prompt of {prompt} tokens leaves no room: the model reads {last} in all")
            length = min(length, last - prompt)
        return limits(self.habits, self.tokenizer, self.model.decoder.embedding.vocabulary, length, start=None)


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
