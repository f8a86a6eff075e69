"""Labels: what runs that classify answer with, and how they do on labelled examples.

B examples, C classes, P predictions for an example
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from glassformer.data.examples import Pixels
from glassformer.errors import GlassformerError, InputError
from glassformer.evaluation import BASELINE, ClassScores
from glassformer.evaluation.bootstrap import Statistic
from glassformer.evaluation.classes import Predictions
from glassformer.evaluation.judging import Judged, accuracy
from glassformer.looking.figures import confusion_figure
from glassformer.looking.trace import Trace
from glassformer.tasks.run import Evaluation, Progress, Run
from glassformer.tasks.showing import Likely, Picture, Reply, Sample, Score

REPEATED = 5  # how often each label or tag occurs in a table, on average, at least


@dataclass(frozen=True)
class Classified:
    """The likeliest label of an example, its probability, and the probability of each label, highest first."""

    label: str
    probability: float
    probabilities: dict[str, float]
    cut: bool = False  # whether only the beginning was read


@dataclass(frozen=True)
class LabelEvaluation(Evaluation):
    """How well labels are predicted: the predictions, and what there is to tell apart."""

    predictions: Predictions
    labels: list[str]

    @property
    def scores(self) -> ClassScores:
        """Accuracy, F1 and the confusion matrix."""
        return self.predictions.scores

    @property
    def loss(self) -> float:  # type: ignore[override]
        """The mean of -log p of the true labels."""
        return self.predictions.loss

    def resampled(self) -> tuple[int, dict[str, Statistic]]:
        return self.predictions.examples, self.predictions.statistics()

    def summary(self) -> dict[str, float]:
        return {"loss": self.loss, "accuracy": self.scores.accuracy, "f1": self.scores.macro_f1}

    def facts(self) -> dict[str, Any]:
        f1 = dict(zip(self.labels, self.scores.f1, strict=True))
        return {"loss": self.loss, "accuracy": self.scores.accuracy, "macro_f1": self.scores.macro_f1, "f1": f1}

    def table(self) -> list[Score]:
        return [
            self.score("accuracy", self.scores.accuracy, ".2%"),
            self.score("macro F1", self.scores.macro_f1, ".4f", "macro_f1"),
        ]

    @property
    def sentence(self) -> str:
        """The scores in a sentence."""
        return ", ".join(f"{each.name} {each}" for each in LabelEvaluation.table(self))

    def f1_lines(self, noun: str) -> list[str]:
        """The F1 of each label, for people."""
        width = max(map(len, self.labels))
        rows = (f"  {label:{width}}  {f1:.3f}" for label, f1 in zip(self.labels, self.scores.f1, strict=True))
        return [f"F1 of each {noun}:", *rows]


@dataclass(frozen=True)
class ClassEvaluation(LabelEvaluation):
    """How a run does on some labelled examples. The baseline is computed when it is first reported."""

    answers: list[Classified]
    noun: str = "texts"  # what the examples are
    unreadable: int | None = None  # images that were left out
    baseline: Callable[[], ClassScores] | None = None

    def facts(self) -> dict[str, Any]:
        """The scores, those of each label, and the confusion matrix."""
        confusion = {"labels": self.labels, "confusion": self.scores.confusion.tolist()}
        left_out = {} if self.unreadable is None else {"unreadable": self.unreadable}
        return {self.noun: len(self.answers)} | super().facts() | confusion | left_out | self._baseline[0]

    def lines(self) -> list[str]:
        left_out = f"{self.unreadable:,} of the images could not be read, and are left out" if self.unreadable else ""
        return [
            f"{len(self.answers):,} {self.noun}: {self.sentence}",
            *self.f1_lines("label"),
            *filter(None, [left_out, self._baseline[1]]),
        ]

    @cached_property
    def _baseline(self) -> tuple[dict[str, Any], str]:
        """How counting words does on the same texts, or why that is not known: facts, and a line."""
        if self.baseline is None:
            return {}, ""
        try:
            scores = self.baseline()
        except GlassformerError as error:
            return {"baseline": {"name": BASELINE, "missing": str(error)}}, f"no baseline: {error}"
        facts = {"name": BASELINE, "accuracy": scores.accuracy, "macro_f1": scores.macro_f1}
        line = f"baseline: {BASELINE} {scores.accuracy:.2%}, macro F1 {scores.macro_f1:.4f}"
        return {"baseline": facts}, line


class Labeller(Run):
    """What the runs that classify texts or images have in common."""

    answers_at: ClassVar[int | None] = 0  # the start token, or the class token

    def judge(self, examples: Sequence[Any], progress: Progress | None = None) -> Judged:
        """Whether each label is predicted; one that was not in training cannot be."""
        labels = [self.label_of(example) for example in examples]
        known = [row for row, label in enumerate(labels) if label in self.labels]
        found: Any = self.evaluate([examples[row] for row in known], progress) if known else None
        predicted = dict(zip(known, found.answers, strict=True)) if known else {}
        return accuracy([float(row in predicted and predicted[row].label == label) for row, label in enumerate(labels)])

    def output_of(self, text: Any) -> str:
        return self.classify([text])[0].label

    def reply(self, text: Any, trace: Trace) -> Reply:
        """The label, and how likely each one is."""
        found = self.classify([text])[0]
        return Reply(labels=tuple(itertools.starmap(Likely, found.probabilities.items())))

    def label_of(self, example: Any) -> str:
        """The true label of an example."""
        return str(example[1])

    def name_of(self, example: Any) -> str:
        """An example in a line."""
        raise NotImplementedError

    def pixels_of(self, example: Any) -> Pixels | None:
        """The image of an example, if it has one."""
        return None

    def samples(self, examples: Sequence[Any], found: ClassEvaluation) -> list[Sample]:
        """Examples and their predicted labels, with the true ones."""
        made = []
        for row in self.rows_shown(examples):
            answer, label = found.answers[row], self.label_of(examples[row])
            made.append(
                Sample(
                    self.name_of(examples[row]),
                    answer.label,
                    label,
                    answer.label == label,
                    called="true label",
                    detail=f"{answer.probability:.0%}",
                    whole=True,
                    pixels=self.pixels_of(examples[row]),
                )
            )
        return made

    def pictures(self, examples: Sequence[Any], found: ClassEvaluation) -> list[Picture]:
        """The confusion matrix, too."""
        figure = confusion_figure(found.scores.confusion, self.labels, self.recipe.title)
        caption = "The confusion matrix: how often each true label got each predicted label."
        return [*super().pictures(examples, found), Picture("confusion", caption, figure)]


def classified(log_probabilities: Tensor, labels: list[str]) -> list[Classified]:
    """The answers that log-probabilities (B, C) stand for."""
    found = []
    values, order = log_probabilities.exp().sort(descending=True)  # (B, C)
    for row, numbers in zip(values.tolist(), order.tolist(), strict=True):
        likely = {labels[number]: value for number, value in zip(numbers, row, strict=True)}
        found.append(Classified(labels[numbers[0]], row[0], likely))
    return found


def predictions(found: Sequence[Tensor], right: Sequence[Sequence[str]], labels: list[str]) -> Predictions:
    """What log-probabilities (P, C) of each example predict, given the true labels (P) of each."""
    log_p = torch.cat([*found]) if found else torch.zeros(0, len(labels))
    true = torch.tensor([number_of(label, labels) for some in right for label in some], dtype=torch.int64)
    return Predictions(
        predicted=log_p.argmax(dim=1).numpy(),
        true=true.numpy(),
        nats=-log_p.gather(1, true[:, None])[:, 0].double().numpy(),
        example=np.repeat(np.arange(len(right)), [len(some) for some in right]),
        classes=len(labels),
    )


def number_of(label: str, labels: list[str], place: str = "") -> int:
    """The number of a label, which must be one of those in training; `place` is where it stands."""
    if label not in labels:
        near = get_close_matches(label, labels, n=1)
        known = f"did you mean {near[0]}?" if near else f"they are {', '.join(labels[:20])}"
        raise InputError(f"{place}{label!r} is not among the labels of this run's training: {known}")
    return labels.index(label)
