"""A run in use: text in, text out.

B sentences, T target length, D model width
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from glassformer.decoding import Limits, Sampler, beam_search, greedy, most_likely, stream
from glassformer.errors import ConfigurationError, InputError
from glassformer.evaluation import Rouge, Scores, perplexity, rouge, score
from glassformer.models import EncoderDecoder
from glassformer.parts import pack, pad, quantise
from glassformer.recipe import Recipe
from glassformer.run import folder as files
from glassformer.run.held_out import Progress, device_of, held_out
from glassformer.run.importing import read_habits
from glassformer.run.written import Translation, inputs, limits, pieces, places, tokens_of, translation
from glassformer.tasks import sequence_loss
from glassformer.text import Habits, Tokenizer, own_habits
from glassformer.training import resolve


@dataclass(frozen=True)
class Evaluation:
    """How a run does on some pairs: the outputs, their scores, and the loss per target token."""

    scores: Scores
    loss: float
    outputs: list[str]
    rouge: Rouge | None = None  # where it was asked for

    @property
    def perplexity(self) -> float:
        """e to the loss: how many equally likely tokens the model hesitates between."""
        return perplexity(self.loss)


class Run:
    """A trained model with everything needed to use it: `run.translate(["5 May 2031"], beam=5)`."""

    def __init__(
        self,
        recipe: Recipe,
        model: EncoderDecoder,
        source: Tokenizer,
        target: Tokenizer,
        path: Path | None = None,
        habits: Habits | None = None,
    ) -> None:
        self.recipe, self.model, self.source, self.target, self.path = recipe, model, source, target, path
        self.habits = habits or own_habits(source, target)

    @classmethod
    def load(cls, path: str | Path, device: str = "auto") -> Run:
        """The run in a folder."""
        path = Path(path)
        files.read_config(path)
        recipe, (source, target) = files.read_run_recipe(path), files.read_tokenizers(path)
        model = cast(EncoderDecoder, files.read_model(path).to(resolve(device)))
        return cls(recipe, model, source, target, path, read_habits(path))

    def pairs(self, split: str = "test") -> list[tuple[str, str]]:
        """The pairs that were kept out of its training: "valid" or "test"."""
        return held_out(self.path, split)

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return device_of(self.model)

    def with_model(self, model: nn.Module) -> Run:
        """The same with another model."""
        return Run(self.recipe, cast(EncoderDecoder, model), self.source, self.target, self.path, self.habits)

    def measure(self, examples: Sequence[tuple[str, str]], most: int) -> dict[str, float]:
        """What validation tells: the loss of all pairs, and scores of the first so many, decoded greedily."""
        loss, some = self.loss(examples), examples[:most]
        outputs = [each.text for each in self.translate([source for source, _ in some], beam=1)]
        references = [target for _, target in some]
        scores = score(outputs, references)
        also = asdict(rouge(outputs, references)) if self._watches_rouge else {}
        return {
            "loss": loss,
            "perplexity": perplexity(loss),
            "bleu": scores.bleu,
            "chrf": scores.chrf,
            "exact": scores.exact,
            **also,
        }

    @property
    def _watches_rouge(self) -> bool:
        return self.recipe.train.watch.startswith("rouge")

    def translate(
        self, texts: Sequence[str], beam: int | None = None, int8: bool = False, progress: Progress | None = None
    ) -> list[Translation]:
        """The best output for each text, in their order."""
        return [best for best, *_ in self.search(texts, beam=beam, int8=int8, progress=progress)]

    def search(
        self,
        texts: Sequence[str],
        beam: int | None = None,
        best: int = 1,
        length_penalty: float | None = None,
        batch: int | None = None,
        int8: bool = False,
        progress: Progress | None = None,
    ) -> list[list[Translation]]:
        """The `best` outputs for each text, best first, in the order of the texts. What is not said is the recipe's.

        With `int8` the larger matrices are rounded to 8 bits: on a CPU a large model is faster so, and nearly as good.
        """
        if isinstance(texts, str):
            raise InputError("translate takes a list of texts: put the text into brackets")
        decode = self.recipe.decode
        beam = decode.beam if beam is None else beam
        size = decode.batch if batch is None else batch
        if size < 1:
            raise ConfigurationError(f"the sentences decoded together must be at least 1, not {size}")
        model = quantise(self.model) if int8 else pack(self.model)
        whole, room = [self._ids(text) for text in texts], self.habits.room(self.recipe.data.max_tokens)
        tokens = [self._framed(ids) for ids in whole]
        answers: list[list[Translation]] = [[Translation("", 0.0, [])] for _ in texts]
        order = sorted((index for index, ids in enumerate(tokens) if ids), key=lambda index: -len(tokens[index]))
        for first in range(0, len(order), size):
            rows = order[first : first + size]
            inputs = self._inputs([tokens[row] for row in rows])
            if beam == 1 and best == 1:
                found = [[each] for each in greedy(model, *inputs, limits=self.limits)]
            else:
                alpha = decode.length_penalty if length_penalty is None else length_penalty
                found = beam_search(model, *inputs, limits=self.limits, width=beam, best=best, length_penalty=alpha)
            for row, hypotheses in zip(rows, found, strict=True):
                cut = len(whole[row]) > room
                answers[row] = [replace(translation(each, self.target), cut=cut) for each in hypotheses]
            if progress is not None:
                progress(min(first + size, len(order)), len(order))
        return answers

    def stream(self, text: str, sampler: Sampler | None = None, length: int | None = None) -> Iterator[str]:
        """The output for one text, piece by piece as it is written."""
        ids = self.encode(text)
        if not ids:
            return iter(())
        limits = self.limits if length is None else replace(self.limits, max_length=length)
        choose = most_likely if sampler is None else sampler
        return pieces(stream(self.model, *self._inputs([ids]), limits=limits, choose=choose), self.target)

    def evaluate(
        self,
        pairs: Sequence[tuple[str, str]],
        beam: int | None = None,
        int8: bool = False,
        progress: Progress | None = None,
        with_rouge: bool | None = None,
    ) -> Evaluation:
        """Translate the sources of some pairs, and compare with their targets; by ROUGE too if training watched it."""
        sources, references = [source for source, _ in pairs], [target for _, target in pairs]
        outputs = [each.text for each in self.translate(sources, beam=beam, int8=int8, progress=progress)]
        wanted = self._watches_rouge if with_rouge is None else with_rouge
        also = rouge(outputs, references) if wanted else None
        return Evaluation(score(outputs, references), self.loss(pairs, int8=int8), outputs, also)

    @torch.inference_mode()
    def loss(self, pairs: Sequence[tuple[str, str]], size: int = 64, int8: bool = False) -> float:
        """The mean of -log p over all target tokens, ends included, given the right tokens before each.

        Targets are cut off where sources are. At most `size` pairs go together, and no more than in training.
        """
        model = quantise(self.model) if int8 else self.model
        budget, habits = self.recipe.train.batch_tokens, self.habits
        encoded = [(self.encode(source), self._written(target)) for source, target in pairs]
        left = sorted((pair for pair in encoded if pair[0]), key=lambda pair: max(map(len, pair)))
        total, count = 0.0, 0
        while left:
            fitting = max(1, min(size, budget // (1 + max(map(len, left[-1])))))
            rows, left = left[-fitting:], left[:-fitting]
            source, source_keep = self._inputs([ids for ids, _ in rows])
            target, keep = pad([[habits.start, *ids, habits.end] for _, ids in rows], habits.pad)
            target, keep = target.to(self.device), keep[:, 1:].to(self.device)
            hidden = model.hidden(source, target[:, :-1], source_keep)  # (B, T, D)
            tokens = int(keep.sum())
            total += float(sequence_loss(hidden, target[:, 1:], keep, tokens, model.head))
            count += tokens
        return total / max(count, 1)

    @property
    def limits(self) -> Limits:
        """What outputs may look like."""
        length = min(self.recipe.decode.max_length, places(self.model) or self.recipe.decode.max_length)
        return limits(
            self.habits, self.target, self.model.decoder.embedding.vocabulary, length, start=self.habits.start
        )

    def encode(self, text: str) -> list[int]:
        """A source text as tokens, as in training: normalised, cut off at the recipe's longest, framed; or nothing."""
        return self._framed(self._ids(text))

    def cuts(self, text: str) -> bool:
        """Whether only the beginning of a text is read."""
        return len(self._ids(text)) > self.habits.room(self.recipe.data.max_tokens)

    def _framed(self, whole: list[int]) -> list[int]:
        ids = whole[: self.habits.room(self.recipe.data.max_tokens)]
        return [*self.habits.before, *ids, *self.habits.after] if ids else []

    def _written(self, text: str) -> list[int]:
        """A target text as tokens, as in training but for its start and end; cut off where sources are."""
        return [*self.habits.lead, *self.target.encode(text)[: self.habits.room(self.recipe.data.max_tokens)]]

    def _ids(self, text: str) -> list[int]:
        return tokens_of(text, self.source, self.recipe.data)

    def _inputs(self, sources: list[list[int]]) -> tuple[Tensor, Tensor]:
        return inputs(sources, self.habits, self.model)
