"""A recogniser: a trained model that says what a series shows, such as what somebody does, in use.

B windows, T steps, C columns or classes
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from glassformer.data.examples import Series
from glassformer.errors import InputError
from glassformer.tasks.labels import ClassEvaluation, Classified, Labeller, classified, predictions
from glassformer.tasks.run import Progress, check_list
from glassformer.tasks.series.reading import SeriesRun
from glassformer.tasks.series.windows import cut


class SeriesClassifier(SeriesRun, Labeller):
    """A trained model that classifies series by their last window: `run.classify(["walk.csv"])`."""

    answers_at: ClassVar[int | None] = None

    def classify(self, items: Sequence[Any], progress: Progress | None = None) -> list[Classified]:
        check_list(items, "classify")
        windows = self.given(items)
        found = classified(self._log_probabilities(windows), self.labels) if windows else []
        if progress is not None:
            progress(len(items), len(items))
        return found

    def evaluate(self, examples: Sequence[Series], progress: Progress | None = None) -> ClassEvaluation:
        """Classify windows, and compare with the labels of their last steps."""
        windows = [window for each in examples for window in cut(each, self.frame, self.task.held_out_stride)]
        if not windows:
            raise InputError(f"there is nothing to evaluate: no series has {self.task.window:,} steps with a label")
        found = self._log_probabilities(windows)
        if progress is not None:
            progress(len(examples), len(examples))
        made = predictions([found], [[self.label_of(window)] for window in windows], self.labels)
        return ClassEvaluation(made, self.labels, classified(found, self.labels), noun="windows")

    @torch.inference_mode()
    def _log_probabilities(self, windows: Sequence[Series]) -> Tensor:
        """Of each label for each window, (B, C)."""
        return F.log_softmax(self.answers(self.history(windows)), dim=-1)

    def label_of(self, example: Series) -> str:
        return str(example.labels[-1])

    def name_of(self, example: Series) -> str:
        start = f" from {example.times[0]:g}" if example.times else ""
        return f"{example.name}{start}"

    def next_commands(self, examples: Sequence[Series]) -> list[str]:
        return ["classify --run RUN data.csv", "evaluate --run RUN"]
