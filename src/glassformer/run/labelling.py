"""Labels: what a run that tells things apart answers with, and how it does on examples.

B examples, C classes
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches

import torch
from torch import Tensor

from glassformer.errors import InputError
from glassformer.evaluation import ClassScores, class_scores
from glassformer.tasks import class_loss


@dataclass(frozen=True)
class Classified:
    """The likeliest label of an example, how likely it is, and how likely each label is, likeliest first."""

    label: str
    probability: float
    probabilities: dict[str, float]
    cut: bool = False  # whether only the beginning of it was read


@dataclass(frozen=True)
class ClassEvaluation:
    """How a run does on some labelled examples."""

    scores: ClassScores
    loss: float
    labels: list[str]
    answers: list[Classified]

    def summary(self) -> dict[str, float]:
        """What validation tells."""
        return {"loss": self.loss, "accuracy": self.scores.accuracy, "f1": self.scores.macro_f1}


def classified(log_probabilities: Tensor, labels: list[str]) -> list[Classified]:
    """The answers of log-probabilities (B, C)."""
    return [_answer(row, labels) for row in log_probabilities]


def _answer(log_probabilities: Tensor, labels: list[str]) -> Classified:
    values, order = log_probabilities.exp().sort(descending=True)
    likely = {labels[number]: value for number, value in zip(order.tolist(), values.tolist(), strict=True)}
    label = next(iter(likely))
    return Classified(label, likely[label], likely)


def compared(log_probabilities: Tensor, right: list[str], labels: list[str]) -> ClassEvaluation:
    """Log-probabilities (B, C) beside the right labels (B)."""
    numbers = torch.tensor([number_of(label, labels) for label in right])
    scores = class_scores(log_probabilities.argmax(dim=1).tolist(), numbers.tolist(), len(labels))
    loss = float(class_loss(log_probabilities, numbers)) / len(right)
    return ClassEvaluation(scores, loss, labels, classified(log_probabilities, labels))


def number_of(label: str, labels: list[str], place: str = "") -> int:
    """The number of a label, which must be one of those in training; `place` is where it stands."""
    if label not in labels:
        near = get_close_matches(label, labels, n=1)
        known = f"did you mean {near[0]}?" if near else f"they are {', '.join(labels[:20])}"
        raise InputError(f"{place}{label!r} is not among the labels of this run's training: {known}")
    return labels.index(label)
