"""A translator: a trained model from text to text, in use.

B sentences, T target length, D model width
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch

from glassformer.decoding import Choose
from glassformer.evaluation import Rouge, Scores, perplexity, rouge, score
from glassformer.evaluation.judging import BLEU, Judged
from glassformer.interop.huggingface import Exported
from glassformer.looking.figures import attention_figure
from glassformer.looking.look import Look
from glassformer.parts import quantise
from glassformer.tasks.losses import sequence_loss
from glassformer.tasks.run import SHOWN, Evaluation, Progress, by_length, check_list, shortened
from glassformer.tasks.writing import Output, Writer, output, pieces

Pairs = Sequence[tuple[str, str]]  # sources, targets


@dataclass(frozen=True)
class TranslationEvaluation(Evaluation):
    """How a run does on some pairs: the outputs, their scores, and the loss per target token."""

    scores: Scores
    loss: float
    outputs: list[str]
    rouge: Rouge | None = None  # if it was asked for

    @property
    def perplexity(self) -> float:
        """e to the loss: between how many equally likely tokens the model hesitates."""
        return perplexity(self.loss)

    def summary(self) -> dict[str, float]:
        scores = {"bleu": self.scores.bleu, "chrf": self.scores.chrf, "exact": self.scores.exact}
        return {"loss": self.loss, "perplexity": self.perplexity, **scores, **self._rouge}

    def facts(self) -> dict[str, Any]:
        """The scores with their signatures."""
        own = {"pairs": len(self.outputs), "loss": self.loss, "perplexity": self.perplexity}
        return own | asdict(self.scores) | self._rouge

    def lines(self) -> list[str]:
        scores = self.scores
        return [
            f"{len(self.outputs):,} pairs",
            f"exact match  {scores.exact:.2%}",
            f"BLEU         {scores.bleu:.2f}   {scores.bleu_signature}",
            f"chrF         {scores.chrf:.2f}   {scores.chrf_signature}",
            *(f"{name.replace('rouge', 'ROUGE-')}      {value:.2f}" for name, value in self._rouge.items()),
            f"perplexity   {self.perplexity:.3f}   (loss {self.loss:.4f} per target token)",
        ]

    @property
    def _rouge(self) -> dict[str, float]:
        return asdict(self.rouge) if self.rouge is not None else {}


class Translator(Writer):
    """A trained model from text to text: `run.translate(["5 May 2031"], beam=5)`."""

    options: ClassVar[frozenset[str]] = frozenset({"beam", "int8", "rouge"})
    looks: ClassVar[str] = "cross"
    opens_with: ClassVar[str] = "AutoModelForSeq2SeqLM and AutoTokenizer"

    def translate(
        self, texts: Sequence[str], beam: int | None = None, int8: bool = False, progress: Progress | None = None
    ) -> list[Output]:
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
    ) -> list[list[Output]]:
        """The `best` outputs for each text, best first, in the order of the texts. Missing values are the recipe's.

        With `int8` the larger matrices are rounded to 8 bits: on a CPU a large model is faster so, and nearly as good.
        """
        check_list(texts, "translate")
        whole, most = [self._ids(text) for text in texts], self._most
        filled = [row for row, ids in enumerate(whole) if ids]
        found = self.outputs(
            [self._framed(whole[row]) for row in filled],
            [self.limits] * len(filled),
            beam,
            best,
            length_penalty=length_penalty,
            batch=batch,
            int8=int8,
            progress=progress,
        )
        answers: list[list[Output]] = [[Output("", 0.0, [])] for _ in texts]
        for row, hypotheses in zip(filled, found, strict=True):
            answers[row] = [replace(output(each, self.target), cut=len(whole[row]) > most) for each in hypotheses]
        return answers

    def stream(self, text: str, sampler: Choose | None = None, length: int | None = None) -> Iterator[str]:
        ids = self.read(text)
        if not ids:
            return iter(())
        limits = self.limits if length is None else self.limits_of(length, self.special.start)
        return pieces(self.streamed(ids, limits, sampler), self.target)

    def evaluate(
        self,
        examples: Pairs,
        progress: Progress | None = None,
        beam: int | None = None,
        int8: bool = False,
        rouge: bool | None = None,
    ) -> TranslationEvaluation:
        """Translate the sources of some pairs, and compare with their targets; by ROUGE too if training watched it."""
        outputs = self.translate([source for source, _ in examples], beam, int8, progress)
        return self._compared(outputs, examples, self.loss(examples, int8=int8), rouge)

    def measure(self, examples: Pairs, most: int) -> dict[str, float]:
        """The loss of all pairs, and scores of the first so many, decoded greedily."""
        some = examples[:most]
        outputs = self.translate([source for source, _ in some], beam=1)
        return self._compared(outputs, some, self.loss(examples)).summary()

    def _compared(
        self, outputs: list[Output], examples: Pairs, loss: float, wanted: bool | None = None
    ) -> TranslationEvaluation:
        texts, references = [each.text for each in outputs], [target for _, target in examples]
        also = self.recipe.train.watch.startswith("rouge") if wanted is None else wanted
        return TranslationEvaluation(score(texts, references), loss, texts, rouge(texts, references) if also else None)

    def judge(self, examples: Pairs, progress: Progress | None = None) -> Judged:
        """The outputs, for BLEU."""
        found = self.translate([source for source, _ in examples], progress=progress)
        references = [target for _, target in examples]
        return Judged(BLEU, "higher", outputs=[each.text for each in found], references=references)

    @torch.inference_mode()
    def loss(self, pairs: Pairs, size: int = 64, int8: bool = False) -> float:
        """The mean of -log p over all target tokens, ends included, given the right tokens before each.

        Targets are cut off where sources are. At most `size` pairs go together, and no more than in training.
        """
        model, special = quantise(self.model) if int8 else self.model, self.special
        encoded = [(self.read(source), self._written(target)) for source, target in pairs]
        encoded = [pair for pair in encoded if pair[0]]
        lengths = [1 + max(map(len, pair)) for pair in encoded]
        total, count = 0.0, 0
        for rows in by_length(lengths, self.recipe.train.batch_tokens, size):
            source, source_keep = self.padded([encoded[row][0] for row in rows])
            target, keep = self.padded([[special.start, *encoded[row][1], special.end] for row in rows])
            hidden = model.hidden(source, target[:, :-1], source_keep)  # (B, T, D)
            tokens = int(keep[:, 1:].sum())
            total += float(sequence_loss(hidden, target[:, 1:], keep[:, 1:], tokens, model.head))
            count += tokens
        return total / max(count, 1)

    @property
    def _most(self) -> int:
        """How many tokens of a text are read, or written in training."""
        return self.special.room(self.recipe.data.max_tokens)

    def read(self, text: str) -> list[int]:
        """A source text as in training: normalised, cut off at the longest, special tokens around; or nothing."""
        return self._framed(self._ids(text))

    def cuts(self, text: str) -> bool:
        """Whether only the beginning of a text is read."""
        return len(self._ids(text)) > self._most

    def _ids(self, text: str) -> list[int]:
        return self.tokenizer.encode(self.normalised(text))

    def _framed(self, whole: list[int]) -> list[int]:
        ids = whole[: self._most]
        return [*self.special.source_prefix, *ids, *self.special.source_suffix] if ids else []

    def _written(self, text: str) -> list[int]:
        """A target text as in training but for its start and end; cut off where sources are."""
        return [*self.special.target_prefix, *self.target.encode(text)[: self._most]]

    # --- what is shown

    def look(self, text: str, beam: int | None = None) -> Look:
        """Translate a text, and what was written attends to."""
        best = self.translate([text], beam=beam)[0]
        return self.recorded_writing(self.read(text), best.ids, best.text)

    def shown(self, examples: Pairs, found: TranslationEvaluation) -> list[str]:
        """Sources and outputs, with the reference where it differs."""
        lines = []
        for (source, reference), text in zip(examples[:SHOWN], found.outputs, strict=False):
            wrong = "" if text == reference else f"   (reference: {reference})"
            lines.append(f"  {shortened(source)}  →  {text}{wrong}")
        return lines

    def example_of(self, sources: Sequence[str]) -> str:
        """A text to look at: short enough for a terminal, and in letters that every terminal has, if there is one."""
        fitting = [source for source in sources if 4 <= len(self.read(source)) <= 14] or [min(sources, key=len)]
        return next((source for source in fitting if source.isascii()), fitting[0])

    def attention_shown(self, examples: Pairs) -> Look:
        return self.look(self.example_of([source for source, _ in examples]))

    def draw(self, examples: Pairs, found: TranslationEvaluation, folder: Path) -> list[Path]:
        """The attention of one translation, if the model has any."""
        source = self.example_of([source for source, _ in examples])
        seen = self.look(source)
        if not len(seen.weights):
            return []
        path = folder / "attention.png"
        attention_figure(seen.mean, seen.rows, seen.columns, path, f"{source} → {seen.output}")
        return [path]

    def next_commands(self, examples: Pairs) -> list[str]:
        source = self.example_of([source for source, _ in examples])
        return [f"translate --run RUN --nbest 3 {shlex.quote(source)}", "evaluate --run RUN"]

    def exported(self) -> Exported:
        """An encoder-decoder with one tokenizer, or two."""
        found = super().exported()
        if self.tokenizer is self.target:
            return found
        return replace(found, opens_with="AutoModelForSeq2SeqLM; its two tokenizers are separate files")
