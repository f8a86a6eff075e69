"""A run that tags: sentences in, a tag for each of their words out.

B pieces of sentences, T length, W words, C classes
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.data import normalise
from glassformer.data.words import Words
from glassformer.errors import InputError
from glassformer.evaluation import ClassScores
from glassformer.recipe import Recipe
from glassformer.run.held_out import Progress, held_out, in_batches, shown
from glassformer.run.labelling import compared
from glassformer.text import Tokenizer


@dataclass(frozen=True)
class Tagged:
    """A sentence's words, the likeliest tag of each, and how likely it is."""

    words: list[str]
    tags: list[str]
    probabilities: list[float]


@dataclass(frozen=True)
class TagEvaluation:
    """How a run does on some tagged sentences: of all words, and how many sentences have no mistake."""

    scores: ClassScores
    exact: float
    loss: float
    words: int
    answers: list[Tagged]

    def summary(self) -> dict[str, float]:
        """What validation tells."""
        return {"loss": self.loss, "accuracy": self.scores.accuracy, "f1": self.scores.macro_f1, "exact": self.exact}


class Tagger:
    """A trained model that tags words: `run.tag(["they can fish"])`."""

    def __init__(
        self, recipe: Recipe, model: nn.Module, tokenizer: Tokenizer, labels: list[str], path: Path | None = None
    ) -> None:
        self.recipe, self.model, self.tokenizer, self.labels, self.path = recipe, model, tokenizer, labels, path

    def pairs(self, split: str = "test") -> list[tuple[str, str]]:
        """The sentences and tags that were kept out of its training: "valid" or "test"."""
        return held_out(self.path, split)

    def with_model(self, model: nn.Module) -> Tagger:
        """The same with another model."""
        return Tagger(self.recipe, model, self.tokenizer, self.labels, self.path)

    def check(self, text: str) -> list[str]:
        """The words of a text, if it has any."""
        words = normalise(text, self.recipe.data).split()
        if not words:
            raise InputError(f"there is nothing to tag in {shown(text)}")
        return words

    def tag(self, texts: Sequence[str], progress: Progress | None = None) -> list[Tagged]:
        """The tags of each text's words, in their order. Words are what stands between spaces."""
        if isinstance(texts, str):
            raise InputError("tag takes a list of texts: put the text into brackets")
        return self.tag_words([self.check(text) for text in texts], progress)

    def tag_words(self, sentences: Sequence[list[str]], progress: Progress | None = None) -> list[Tagged]:
        """The same for sentences whose words are apart already."""
        found = self._log_probabilities(sentences, progress)
        return [self._tagged(*each) for each in zip(sentences, found, strict=True)]

    def evaluate(self, examples: Sequence[tuple[str, str]], progress: Progress | None = None) -> TagEvaluation:
        """Tag the sentences of some examples, and compare with their tags."""
        if not examples:
            raise InputError("there is nothing to evaluate: no tagged sentence")
        sentences, right = [self.check(text) for text, _ in examples], [tags.split() for _, tags in examples]
        for words, tags in zip(sentences, right, strict=True):
            if len(words) != len(tags):
                raise InputError(f"{shown(' '.join(words))} has {len(words)} words but {len(tags)} tags")
        found = self._log_probabilities(sentences, progress)
        answers = [self._tagged(*each) for each in zip(sentences, found, strict=True)]
        each_word = compared(torch.cat(found), [*chain.from_iterable(right)], self.labels)
        exact = sum(answer.tags == tags for answer, tags in zip(answers, right, strict=True)) / len(answers)
        return TagEvaluation(each_word.scores, exact, each_word.loss, len(each_word.answers), answers)

    def measure(self, examples: Sequence[tuple[str, str]], most: int) -> dict[str, float]:
        """What validation tells."""
        return self.evaluate(examples).summary()

    def _tagged(self, words: list[str], log_probabilities: Tensor) -> Tagged:
        values, numbers = log_probabilities.exp().max(dim=1)
        return Tagged(words, [self.labels[number] for number in numbers.tolist()], values.tolist())

    @torch.inference_mode()
    def _log_probabilities(self, sentences: Sequence[list[str]], progress: Progress | None = None) -> list[Tensor]:
        """Of each tag for each word, (W, C) a sentence; a long one is read in pieces, those of like length together."""
        data, train = self.recipe.data, self.recipe.train
        numbered = [
            (sentence, piece)
            for sentence, pieces in enumerate(Words(self.tokenizer, data.max_tokens)(sentences))
            for piece in pieces
        ]
        read = [piece.tokens for _, piece in numbered]
        found: dict[int, Tensor] = {}
        for rows, tokens, keep in in_batches(read, train.batch_tokens, self.tokenizer.pad, self.model, progress):
            said = F.log_softmax(self.model(tokens, keep).float(), dim=-1).cpu()  # (B, T, C)
            found |= {row: each[numbered[row][1].lasts] for row, each in zip(rows, said, strict=True)}
        joined: list[list[Tensor]] = [[] for _ in sentences]
        for row, (sentence, _) in enumerate(numbered):
            joined[sentence].append(found[row])
        return [torch.cat(each) for each in joined]
