"""A run in use: text in, text out.

B sentences, T target length, D model width
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from glassformer.decoding import Hypothesis, Limits, Sampler, beam_search, greedy, most_likely, stream
from glassformer.errors import ConfigurationError, InputError
from glassformer.evaluation import Scores, perplexity, score
from glassformer.models import EncoderDecoder
from glassformer.parts import pack, pad, quantise
from glassformer.recipe import Recipe
from glassformer.run import folder as files
from glassformer.text import Tokenizer
from glassformer.training import resolve, sequence_loss

Progress = Callable[[int, int], None]  # done, of how many


@dataclass(frozen=True)
class Translation:
    """One output: its text, the score it was ranked by, and its tokens."""

    text: str
    score: float
    tokens: list[str]
    ids: list[int] = field(default_factory=list)
    log_probability: float = 0.0
    finished: bool = True


@dataclass(frozen=True)
class Evaluation:
    """How a run does on some pairs: the outputs, their scores, and the loss per target token."""

    scores: Scores
    loss: float
    outputs: list[str]

    @property
    def perplexity(self) -> float:
        """e to the loss: how many equally likely tokens the model hesitates between."""
        return perplexity(self.loss)


class Run:
    """A trained model with everything needed to use it: `run.translate(["5 May 2031"], beam=5)`."""

    def __init__(
        self, recipe: Recipe, model: EncoderDecoder, source: Tokenizer, target: Tokenizer, path: Path | None = None
    ) -> None:
        self.recipe, self.model, self.source, self.target, self.path = recipe, model, source, target, path

    @classmethod
    def load(cls, path: str | Path, device: str = "auto") -> Run:
        """The run in a folder."""
        path = Path(path)
        files.read_config(path)
        recipe, (source, target) = files.read_run_recipe(path), files.read_tokenizers(path)
        return cls(recipe, files.read_model(path).to(resolve(device)), source, target, path)

    def pairs(self, split: str = "test") -> list[tuple[str, str]]:
        """The pairs that were kept out of its training: "valid" or "test"."""
        if self.path is None:
            raise InputError("this run has no folder to read its pairs from")
        pairs = files.read_pairs(self.path, split)
        if not pairs:
            raise InputError(f"{self.path} has no {split} pairs: name a file of your own")
        return pairs

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.model.parameters()).device

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
        tokens = [self.encode(text) for text in texts]
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
                answers[row] = [self._translation(each) for each in hypotheses]
            if progress is not None:
                progress(min(first + size, len(order)), len(order))
        return answers

    def stream(self, text: str, sampler: Sampler | None = None) -> Iterator[str]:
        """The output for one text, piece by piece as it is written."""
        ids = self.encode(text)
        if not ids:
            return
        choose = most_likely if sampler is None else sampler
        written: list[int] = []
        shown = whole = ""
        for event in stream(self.model, *self._inputs([ids]), limits=self.limits, choose=choose):
            written.append(event.token)
            whole = self.target.decode(written)
            if whole != shown and not whole.endswith("\ufffd"):  # a letter of which only some bytes are there yet
                yield whole[len(shown) :]
                shown = whole
        if whole != shown:
            yield whole[len(shown) :]

    def evaluate(
        self,
        pairs: Sequence[tuple[str, str]],
        beam: int | None = None,
        int8: bool = False,
        progress: Progress | None = None,
    ) -> Evaluation:
        """Translate the sources of some pairs, and compare with their targets."""
        sources, references = [source for source, _ in pairs], [target for _, target in pairs]
        outputs = [each.text for each in self.translate(sources, beam=beam, int8=int8, progress=progress)]
        return Evaluation(score(outputs, references), self.loss(pairs), outputs)

    @torch.inference_mode()
    def loss(self, pairs: Sequence[tuple[str, str]], size: int = 64) -> float:
        """The mean of -log p over all target tokens, ends included, given the right tokens before each.

        Targets are cut off where sources are. At most `size` pairs go together, and no more than in training.
        """
        most, budget = self.recipe.data.max_tokens, self.recipe.train.batch_tokens
        encoded = [(self.encode(source), self.target.encode(target)[:most]) for source, target in pairs]
        left = sorted((pair for pair in encoded if pair[0]), key=lambda pair: max(map(len, pair)))
        total, count = 0.0, 0
        while left:
            fitting = max(1, min(size, budget // (1 + max(map(len, left[-1])))))
            rows, left = left[-fitting:], left[:-fitting]
            source, source_keep = self._inputs([ids for ids, _ in rows])
            target, keep = pad([[self.target.start, *ids, self.target.end] for _, ids in rows], self.target.pad)
            target, keep = target.to(self.device), keep[:, 1:].to(self.device)
            hidden = self.model.hidden(source, target[:, :-1], source_keep)  # (B, T, D)
            tokens = int(keep.sum())
            total += float(sequence_loss(hidden, target[:, 1:], keep, tokens, self.model.head))
            count += tokens
        return total / max(count, 1)

    @property
    def limits(self) -> Limits:
        """What outputs may look like."""
        never = sorted({self.target.pad, self.target.start, self.target.unknown} - {self.target.end})
        length = self.recipe.decode.max_length
        return Limits(self.target.start, self.target.end, max_length=length, suppress=never)

    def encode(self, text: str) -> list[int]:
        """A source text as tokens, normalised as in training, cut off at the recipe's longest."""
        from glassformer.data import normalise

        try:
            text.encode()
        except (AttributeError, UnicodeEncodeError):
            raise InputError(f"{text!r} is no text") from None
        return self.source.encode(normalise(text, self.recipe.data))[: self.recipe.data.max_tokens]

    def _inputs(self, sources: list[list[int]]) -> tuple[Tensor, Tensor]:
        tokens, keep = pad(sources, self.source.pad)
        return tokens.to(self.device), keep.to(self.device)

    def _translation(self, found: Hypothesis) -> Translation:
        return Translation(
            self.target.decode(found.tokens),
            found.score,
            self.target.tokens(found.tokens),
            found.tokens,
            found.log_probability,
            found.finished,
        )
