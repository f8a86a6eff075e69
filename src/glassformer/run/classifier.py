"""A run that classifies: texts in, labels out.

B texts, T length, C classes
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.data import BETWEEN, normalise
from glassformer.errors import InputError
from glassformer.evaluation import BASELINE, ClassScores, baseline
from glassformer.recipe import Recipe, texts_of
from glassformer.run.folder import SAMPLE, read_pairs
from glassformer.run.held_out import Progress, held_out, in_batches
from glassformer.run.labelling import ClassEvaluation, Classified, classified, compared, number_of
from glassformer.tasks import segments_of
from glassformer.text import Tokenizer

Text = str | tuple[str, str]  # one text, or two that are read together


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
        found, cut = self._log_probabilities(texts, progress)
        answers = classified(found, self.labels)
        for row in cut:
            answers[row] = replace(answers[row], cut=True)
        return answers

    def evaluate(self, examples: Sequence[tuple[str, str]], progress: Progress | None = None) -> ClassEvaluation:
        """Classify the texts of some examples, and compare with their labels."""
        if not examples:
            raise InputError("there is nothing to evaluate: no labelled text")
        for _, label in examples:
            number_of(label, self.labels)
        found, _ = self._log_probabilities([_text(source) for source, _ in examples], progress)  # (B, C)
        return compared(found, [label for _, label in examples], self.labels)

    def baseline(self, examples: Sequence[tuple[str, str]]) -> ClassScores:
        """How counting words does on the same examples, taught with the same texts."""
        if self.path is None or not (self.path / f"{SAMPLE}.jsonl").is_file():
            raise InputError(f"{BASELINE} has no texts to learn from: this run has kept none")
        train, test = (
            [(source.replace(BETWEEN, " "), label) for source, label in each]
            for each in (read_pairs(self.path, SAMPLE), examples)
        )
        return baseline(train, test, self.labels)

    def measure(self, examples: Sequence[tuple[str, str]], most: int) -> dict[str, float]:
        """What validation tells."""
        return self.evaluate(examples).summary()

    @torch.inference_mode()
    def _log_probabilities(self, texts: Sequence[Text], progress: Progress | None = None) -> tuple[Tensor, list[int]]:
        """Of each label for each text, (B, C), and which texts were cut; texts of like length go together."""
        limit, budget = self.recipe.data.max_tokens, self.recipe.train.batch_tokens
        framed, cut = self.tokenizer.frame_within([self._parts(text) for text in texts], limit)
        found = torch.zeros(len(framed), len(self.labels))
        for rows, tokens, keep in in_batches(framed, budget, self.tokenizer.pad, self.model, progress):
            segments = segments_of(tokens, self.tokenizer.end) if tells_segments(self.model) else None
            found[rows] = F.log_softmax(self.model(tokens, keep, segments).float(), dim=-1).cpu()
        return found, cut

    @property
    def texts(self) -> int:
        """How many texts are read together: one, or two."""
        return texts_of(self.recipe.source)

    def _parts(self, text: Text) -> list[str]:
        parts = [text] if isinstance(text, str) else list(text)
        if len(parts) != self.texts:
            wanted = "one text at a time" if self.texts == 1 else "pairs of texts, (first, second)"
            raise InputError(f"this run has learned from {wanted}, not {len(parts)} together as in {text!r}")
        if not all(part.strip() for part in parts):
            raise InputError(f"there is nothing to classify in {text!r}")
        return [normalise(part, self.recipe.data) for part in parts]


def _text(source: str) -> Text:
    first, *second = source.split(BETWEEN)
    return (first, second[0]) if second else first


def tells_segments(model: nn.Module) -> bool:
    """Whether the model is told which of two texts a token is from."""
    return bool(getattr(model, "made").arguments.get("segments", 1) > 1)  # noqa: B009  # torch has no type for it
