"""A run that classifies: texts in, labels out.

B texts, T length, C classes
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.data import BETWEEN, normalise
from glassformer.errors import InputError
from glassformer.evaluation import ClassScores, class_scores
from glassformer.parts import pad
from glassformer.recipe import Recipe
from glassformer.run.held_out import Progress, device_of, held_out
from glassformer.tasks import class_loss, segments_of
from glassformer.text import Tokenizer

Text = str | tuple[str, str]  # one text, or two that are read together


@dataclass(frozen=True)
class Classified:
    """The likeliest label of a text, how likely it is, and how likely each label is, likeliest first."""

    label: str
    probability: float
    probabilities: dict[str, float]


@dataclass(frozen=True)
class ClassEvaluation:
    """How a run does on some labelled texts."""

    scores: ClassScores
    loss: float
    labels: list[str]
    answers: list[Classified]


class Classifier:
    """A trained model that tells texts apart: `run.classify(["what a film!"])`."""

    def __init__(
        self, recipe: Recipe, model: nn.Module, tokenizer: Tokenizer, labels: list[str], path: Path | None = None
    ) -> None:
        self.recipe, self.model, self.tokenizer, self.labels, self.path = recipe, model, tokenizer, labels, path

    def pairs(self, split: str = "test") -> list[tuple[str, str]]:
        """The texts and labels that were kept out of its training: "valid" or "test"."""
        return held_out(self.path, split)

    def with_model(self, model: nn.Module) -> Classifier:
        """The same with another model."""
        return Classifier(self.recipe, model, self.tokenizer, self.labels, self.path)

    def classify(self, texts: Sequence[Text], progress: Progress | None = None) -> list[Classified]:
        """The label of each text, in their order."""
        if isinstance(texts, str):
            raise InputError("classify takes a list of texts: put the text into brackets")
        return [self._classified(row) for row in self._log_probabilities(texts, progress)]

    def evaluate(self, examples: Sequence[tuple[str, str]], progress: Progress | None = None) -> ClassEvaluation:
        """Classify the texts of some examples, and compare with their labels."""
        if not examples:
            raise InputError("there is nothing to evaluate: no labelled text")
        right = torch.tensor([self._number(label) for _, label in examples])
        found = self._log_probabilities([_text(source) for source, _ in examples], progress)  # (B, C)
        scores = class_scores(found.argmax(dim=1).tolist(), right.tolist(), len(self.labels))
        loss = float(class_loss(found, right)) / len(examples)
        return ClassEvaluation(scores, loss, self.labels, [self._classified(row) for row in found])

    def measure(self, examples: Sequence[tuple[str, str]], most: int) -> dict[str, float]:
        """What validation tells."""
        known = [example for example in examples if example[1] in self.labels]
        found = self.evaluate(known)
        return {"loss": found.loss, "accuracy": found.scores.accuracy, "f1": found.scores.macro_f1}

    @torch.inference_mode()
    def _log_probabilities(self, texts: Sequence[Text], progress: Progress | None = None) -> Tensor:
        """Of each label for each text, (B, C); texts of like length go together."""
        limit, budget = self.recipe.data.max_tokens, self.recipe.train.batch_tokens
        framed = self.tokenizer.frame([self._parts(text) for text in texts], limit)
        left = sorted(range(len(framed)), key=lambda row: len(framed[row]))
        found = torch.zeros(len(framed), len(self.labels))
        while left:
            fitting = max(1, min(len(left), budget // len(framed[left[-1]])))
            rows, left = left[-fitting:], left[:-fitting]
            tokens, keep = (
                each.to(device_of(self.model)) for each in pad([framed[row] for row in rows], self.tokenizer.pad)
            )
            segments = segments_of(tokens, self.tokenizer.end) if tells_segments(self.model) else None
            found[rows] = F.log_softmax(self.model(tokens, keep, segments).float(), dim=-1).cpu()
            if progress is not None:
                progress(len(framed) - len(left), len(framed))
        return found

    def _parts(self, text: Text) -> list[str]:
        parts = [text] if isinstance(text, str) else list(text)
        if not all(part.strip() for part in parts):
            raise InputError(f"there is nothing to classify in {text!r}")
        return [normalise(part, self.recipe.data) for part in parts]

    def _number(self, label: str) -> int:
        if label not in self.labels:
            near = get_close_matches(label, self.labels, n=1)
            known = f"did you mean {near[0]}?" if near else f"they are {', '.join(self.labels[:20])}"
            raise InputError(f"{label!r} is not among the labels of this run's training: {known}")
        return self.labels.index(label)

    def _classified(self, log_probabilities: Tensor) -> Classified:
        values, order = log_probabilities.exp().sort(descending=True)
        likely = {self.labels[number]: value for number, value in zip(order.tolist(), values.tolist(), strict=True)}
        label = next(iter(likely))
        return Classified(label, likely[label], likely)


def _text(source: str) -> Text:
    first, *second = source.split(BETWEEN)
    return (first, second[0]) if second else first


def tells_segments(model: nn.Module) -> bool:
    """Whether the model is told which of two texts a token is from."""
    return bool(getattr(model, "made").arguments.get("segments", 1) > 1)  # noqa: B009  # torch has no type for it
