"""Classification: a text, or two, is read whole, and one of a few labels is the answer.

B texts in a batch, T length, C classes
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from textwrap import shorten
from typing import Any, ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.data import BadRow, Columns, Context, Corpus, Encoded
from glassformer.data.examples import read_examples
from glassformer.data.preparing import SAMPLE
from glassformer.errors import InputError
from glassformer.evaluation import BASELINE, ClassScores, baseline
from glassformer.recipe import Recipe
from glassformer.tasks.encoding import TextEncoder
from glassformer.tasks.gathering import TextBatch, TextCollator
from glassformer.tasks.labels import (
    REPEATED,
    ClassEvaluation,
    Classified,
    Labeller,
    classified,
    number_of,
    predictions,
)
from glassformer.tasks.losses import class_loss
from glassformer.tasks.protocol import Learner, Loss
from glassformer.tasks.run import Progress, Run, check_list, in_batches
from glassformer.tasks.showing import WIDEST
from glassformer.tasks.task import Task, encodes_for

Text = str | Sequence[str]  # one text, or two that are read together
LONG_LABEL = 40  # characters beyond which it is hardly a label
SAMPLED = 5_000  # characters of a text that a sample keeps


class Labelled(NamedTuple):
    """A text, or two that are read together, and its label."""

    texts: tuple[str, ...]
    label: str


def classification_loss(learner: Learner, batch: TextBatch) -> Tensor:
    """The summed loss of the labels."""
    logits = learner.head(learner.hidden(batch.text, batch.mask, batch.segments))  # (B, C)
    return class_loss(logits, batch.labels, learner.smoothing)


class Classifier(Labeller, TextEncoder):
    """A trained model that classifies texts: `run.classify(["what a film!"])`."""

    opens_with: ClassVar[str] = "AutoModelForSequenceClassification and AutoTokenizer (with truncation=True)"
    exports: ClassVar[dict[str, Any]] = {"encodes": True}

    def classify(self, items: Sequence[Text], progress: Progress | None = None) -> list[Classified]:
        check_list(items, "classify")
        found, cut = self._log_probabilities(items, progress)
        answers = classified(found, self.labels)
        for row in cut:
            answers[row] = replace(answers[row], cut=True)
        return answers

    def evaluate(self, examples: Sequence[tuple[Text, str]], progress: Progress | None = None) -> ClassEvaluation:
        if not examples:
            raise InputError("there is nothing to evaluate: no labelled text")
        for _, label in examples:
            number_of(label, self.labels)
        found, _ = self._log_probabilities([texts for texts, _ in examples], progress)  # (B, C)
        made = predictions([found], [[label] for _, label in examples], self.labels)
        answers, words = classified(found, self.labels), partial(self.baseline, examples)
        return ClassEvaluation(made, self.labels, answers, baseline=words)

    def baseline(self, examples: Sequence[tuple[Text, str]]) -> ClassScores:
        """How counting words does on the same examples, trained on a sample of the same texts."""
        if self.path is None or not (self.path / SAMPLE).is_file():
            raise InputError(f"{BASELINE} has no texts to learn from: this run has kept none")
        sample = read_examples(self.path / SAMPLE, Labelled)
        train, test = ([(" ".join(_parts(texts)), label) for texts, label in some] for some in (sample, examples))
        return baseline(train, test, self.labels)

    @torch.inference_mode()
    def _log_probabilities(self, texts: Sequence[Text], progress: Progress | None = None) -> tuple[Tensor, list[int]]:
        """Of each label for each text, (B, C), and which texts were cut; texts of similar length go together."""
        framed, cut = self._framed(texts)
        found = torch.zeros(len(framed), len(self.labels))
        for rows, tokens, keep in in_batches(framed, self, progress):
            logits = self.model(*self.inputs(tokens, keep))  # (B, C)
            found[rows] = F.log_softmax(logits.float(), dim=-1).cpu()
        return found, cut

    @property
    def texts(self) -> int | None:
        """How many texts are read together: one, or two; None: an imported model does not say."""
        return None if self.recipe.source is None else int(self.recipe.source.columns_read()) - 1

    def _framed(self, texts: Sequence[Text]) -> tuple[list[list[int]], list[int]]:
        """The tokens of each text, and which texts were cut."""
        parts = [self._checked(text) for text in texts]
        return self.tokenizer.frame_within(parts, self.recipe.data.max_tokens)

    def _checked(self, text: Text) -> list[str]:
        parts = _parts(text)
        if len(parts) != (self.texts or min(len(parts), 2)):
            wanted = "one text at a time" if self.texts == 1 else "pairs of texts, (first, second)"
            raise InputError(f"this run has learned from {wanted}, not {len(parts)} together as in {text!r}")
        if not all(part.strip() for part in parts):
            raise InputError(f"there is nothing to classify in {text!r}")
        return [self.normalised(part) for part in parts]

    @property
    def fields(self) -> tuple[str, ...]:
        return ("text",) if self.texts == 1 else ("first text", "second text")

    def item(self, text: str) -> Text:
        """The text, or the two with a tab between that the run reads together."""
        most = self.texts or 2
        parts = tuple(text.split("\t", most - 1)) if most > 1 else tuple(text.split("\t"))
        if self.texts is not None and len(parts) != self.texts:
            expected = "one text, without a tab" if self.texts == 1 else "two texts with a tab between"
            raise InputError(f"this run was trained on {expected}: found {len(parts)}")
        if not all(part.strip() for part in parts):
            raise InputError(f"the {'second' if parts[0].strip() else 'first'} text is empty")
        return parts if len(parts) > 1 else text

    def cuts(self, text: Text) -> bool:
        return bool(self._framed([text])[1])

    def read(self, text: Text) -> list[int]:
        return self._framed([text])[0][0]

    def name_of(self, example: tuple[Text, str]) -> str:
        return " | ".join(_parts(example[0]))

    def next_commands(self, examples: Sequence[tuple[Text, str]]) -> list[str]:
        """Classify the shortest text; two have a tab between."""
        shortest = min((_parts(texts) for texts, _ in examples), key=lambda parts: sum(map(len, parts)))
        texts = [shlex.quote(shorten(part, WIDEST, placeholder="")) for part in shortest]
        one = texts[0] if len(texts) == 1 else "\"$(printf '%s\\t%s' " + " ".join(texts) + ')"'
        return [f"classify --run RUN {one}", "evaluate --run RUN"]


def _parts(text: Text) -> list[str]:
    return [text] if isinstance(text, str) else list(text)


class ClassificationTask(Task):
    """From a text, or two, to one of the labels that occur in training."""

    kind: Literal["classification"]

    answer: ClassVar[str] = "classes"
    scores: ClassVar[tuple[str, ...]] = ("loss", "accuracy", "f1")
    defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "data": {"max_characters": 100_000},  # a long text is cut, not dropped
        "model": {"family": "bert"},
        "train": {"smoothing": 0.0, "watch": "accuracy"},
    }
    unused: ClassVar[dict[str, str]] = {
        "data.max_ratio": "only the text has a length",
        "data.long": "long texts are truncated",
        "tokenizer.joint": "there is one tokenizer",
        "train.validate_sentences": "all validation examples are scored",
        "decode.*": "nothing is written",
    }
    framed: ClassVar[bool] = True
    least: ClassVar[int] = 3  # start, a token, end
    keeps_sample: ClassVar[bool] = True
    Example: ClassVar[type[Labelled]] = Labelled
    loss: ClassVar[Loss] = staticmethod(classification_loss)
    Run: ClassVar[type[Run]] = Classifier

    @classmethod
    def likelihood(cls, rows: Sequence[Any]) -> float:
        """A label occurs again and again, and is short."""
        labels = {row.cells[-1] for row in rows}
        repeated = len(labels) * REPEATED <= len(rows) or {*map(str.isdigit, labels)} == {True}
        return 0.8 if repeated and max(map(len, labels)) <= LONG_LABEL else 0.0

    def example(self, found: Columns) -> Labelled:
        """The last column is the label."""
        *texts, label = found.cells
        if not 1 <= len(texts) <= 2:
            raise BadRow("wrong column count", f"{len(found.cells)} columns, not a text or two and a label")
        return Labelled(tuple(texts), label)

    def texts(self, example: Labelled, side: int) -> tuple[str, ...]:
        return example.texts

    def shortened(self, example: Labelled) -> Labelled:
        """The beginnings of the texts."""
        return Labelled(tuple(text[:SAMPLED] for text in example.texts), example.label)

    def encode(self, examples: list[Labelled], context: Context) -> Encoded:
        """One side is the framed text, or two, the other the number of the label."""
        numbers = {label: number for number, label in enumerate(context.assets.labels)}
        known = [example for example in examples if example.label in numbers]
        framed, long = context.tokenizer.frame_within([example.texts for example in known], context.max_tokens)
        counts = Counter(label=len(examples) - len(known), truncate=len(long))
        rows = [(ids, [numbers[example.label]]) for ids, example in zip(framed, known, strict=True)]
        return Encoded.of(rows, counts)

    def collator(self, recipe: Recipe, corpus: Corpus, model: nn.Module) -> TextCollator:
        return TextCollator.of(corpus, model)

    @classmethod
    def adopts(cls, model: nn.Module) -> bool:
        """An encoder with a head for whole texts."""
        return encodes_for(model, cls.answer)
