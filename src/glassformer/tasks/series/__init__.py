"""Series: numbers over time. A window of them is read, and the next numbers, or a label, are the answer.

A series is split by time: its beginning is for training, what follows for validation, its end for the test. So what is
held out lies in the future of all that was learned from. A forecast may read the steps before those that it predicts,
also those of the split before; a label is that of steps which lie in one split only.

C columns, P columns that are predicted, Q quantiles, N numbers
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import AfterValidator, Field
from torch import Tensor, nn

from glassformer.data import Assets, BadRow, Context, Corpus, Encoded
from glassformer.data.examples import Series
from glassformer.parts.values import NumberHead, ValueEmbedding
from glassformer.recipe import Recipe
from glassformer.recipe.values import Count, Fraction, Place
from glassformer.tasks.losses import class_loss
from glassformer.tasks.protocol import Learner, Loss
from glassformer.tasks.run import Run
from glassformer.tasks.series.forecaster import Forecaster
from glassformer.tasks.series.recogniser import SeriesClassifier
from glassformer.tasks.series.windows import (
    NO_LABEL,
    Criterion,
    Frame,
    LabelBatch,
    LabelCollator,
    NumberCollator,
    Windows,
    cut,
    number_loss,
    table,
)
from glassformer.tasks.task import Task

NO_TEXT = "a series has no text"
FEW = 6  # steps of a window that are shown in a line
MOST_NUMBERS = 100_000  # that a model predicts together
Steps = Annotated[Count, Field(le=100_000)]
Normalise = Literal["window", "training"]


class SeriesTask(Task):
    """The base of the tasks that learn from series."""

    window: Steps = Field(96, description="steps that are read")
    stride: Steps = Field(1, description="steps from one training window to the next")

    reads: ClassVar[tuple[type, ...]] = (Series,)
    tokenizers: ClassVar[int] = 0
    unused: ClassVar[dict[str, str]] = {
        **{f"data.{key}": NO_TEXT for key in ("normalise", "strip", "max_*", "long")},
        "data.seed": "series are split by time",
        "tokenizer.*": NO_TEXT,
        "train.validate_sentences": "all validation windows are scored",
        "decode.*": "nothing is written",
    }
    suggested: ClassVar[dict[str, dict[str, Any]]] = {
        "data": {"valid": 0.1, "test": 0.2},
        "model": {"width": 64, "heads": 4, "layers": 2, "hidden": 128, "dropout": 0.1},
        "train": {"batch_tokens": 4096},
    }
    counted_in: ClassVar[str] = "steps"
    learned_from: ClassVar[str] = "windows"
    block: ClassVar[int] = 10
    left_out: ClassVar[dict[str, str]] = {"short": "series (or their parts) without a whole window"}
    Example: ClassVar[type[Series]] = Series

    def frame(self, columns: Sequence[str]) -> Frame:
        """What of a window is read, and what is predicted, given the names of all columns."""
        raise NotImplementedError

    @property
    def held_out_stride(self) -> int:
        """Steps from one held-out window to the next: nothing is scored twice."""
        raise NotImplementedError

    def check(self, recipe: Recipe) -> None:
        """A window fits into a batch."""
        longest = max(self.window, self.frame(recipe.source.columns).horizon)
        if longest >= recipe.train.batch_tokens:
            raise ValueError(
                f"train.batch_tokens is {recipe.train.batch_tokens}: it must be above {longest}, the steps of a window"
            )

    def length(self, recipe: Recipe) -> int:
        """The steps of a window."""
        return self.window

    def given(self, recipe: Recipe, vocabularies: tuple[int, ...], classes: int) -> dict[str, Any]:
        """How many numbers a step has, and how many steps there are."""
        columns = len(self.frame(recipe.source.columns).read)
        return {"columns": columns, "length": self.window, "classes": classes, "answer": self.answer}

    def file_source(self, path: str, recipe: Recipe) -> dict[str, Any]:
        """A CSV file with the columns that the run was trained on."""
        keys = {key: getattr(recipe.source, key, None) for key in ("columns", "time", "series", "label", "max_gap")}
        return {"kind": "csv", "train": path} | {key: value for key, value in keys.items() if value is not None}

    def example(self, found: Series) -> Series:
        return found

    def split_key(self, example: Series) -> bytes:
        """The series itself."""
        return example.name.encode() + self.identity(example)

    def identity(self, example: Series) -> bytes:
        """The numbers and labels; when they were measured does not matter."""
        return table(example).tobytes() + "\0".join(label or "" for label in example.labels).encode()

    def parts(self, example: Series, hashed: int, valid: float, test: float) -> Iterable[tuple[str, Series]]:
        """Cut by time: what comes first is for training, what comes last for the test."""
        steps = len(example.values)
        trained, validated = steps - round(steps * (valid + test)), steps - round(steps * test)
        frame = self.frame(example.columns)
        before = frame.first if frame.ahead else 0  # steps before a split that its first forecast reads
        yield "train", example.part(0, trained)
        for split, first, last in (("valid", trained, validated), ("test", validated, steps)):
            if first < last:
                yield split, example.part(max(0, first - before), last)

    def words(self, example: Series) -> int:
        """How many steps there are."""
        return len(example.values)

    def name_of(self, example: Series) -> str:
        """The name of a window, and its first steps."""
        steps = ["/".join("?" if each is None else f"{each:.3g}" for each in row) for row in example.values[:FEW]]
        return f"{example.name}: {' '.join(steps)} …"

    def scorable(self, examples: Sequence[Series], assets: Assets) -> list[Series]:
        """The windows of held-out series."""
        windows = [window for each in examples for window in cut(each, self.frame(each.columns), self.held_out_stride)]
        return super().scorable(windows, assets)

    def largest_number(self, assets: Assets) -> int:
        """The bits of a float."""
        return 2**32 - 1

    def encode(self, examples: list[Series], context: Context) -> Encoded:
        """One side is the numbers of a series, the other the numbers of its labels."""
        known = {label: number for number, label in enumerate(context.assets.labels)}
        kept = [each for each in examples if any(cut(each, self.frame(each.columns), self.stride))]
        rows, lengths = [np.zeros(0, np.uint32)], []
        for each in kept:
            values = table(each).astype(np.float32)
            labels = [NO_LABEL if label is None else known.get(label, NO_LABEL) for label in each.labels]
            rows += [values.ravel().view(np.uint32), np.array(labels, np.uint32)]
            lengths.append([values.size, len(labels)])
        counts = Counter(short=len(examples) - len(kept))
        return Encoded(np.concatenate(rows), np.array(lengths, np.int64).reshape(-1, 2), +counts)

    def windows(self, recipe: Recipe, corpus: Corpus) -> Windows:
        """The training windows."""
        names = recipe.source.columns
        return Windows(corpus.splits["train"], self.frame(names), len(names), self.stride)

    def take_over(self, model: nn.Module, corpus: Corpus, columns: Sequence[str]) -> None:
        """Tell a model the mean and the deviation of each column in training."""
        rows, frame = corpus.splits["train"], self.frame(columns)
        each = [rows.source(row).view(np.float32).reshape(-1, len(columns)) for row in range(len(rows))]
        values = np.concatenate(each).astype(np.float64)  # (T, C)
        known = np.maximum((~np.isnan(values)).sum(axis=0), 1)
        mean = np.nansum(values, axis=0) / known
        deviation = np.sqrt(np.nansum((values - mean) ** 2, axis=0) / known)
        deviation[deviation == 0] = 1.0
        for part in model.modules():
            if isinstance(part, ValueEmbedding):
                part.mean.copy_(torch.from_numpy(mean[[*frame.read]]))
                part.deviation.copy_(torch.from_numpy(deviation[[*frame.read]]))
            elif isinstance(part, NumberHead):
                shape = (frame.horizon, len(frame.predicted), -1)
                part.mean.view(shape).copy_(torch.from_numpy(mean[[*frame.predicted]])[None, :, None])
                part.deviation.view(shape).copy_(torch.from_numpy(deviation[[*frame.predicted]])[None, :, None])


def _levels(quantiles: tuple[float, ...]) -> tuple[float, ...]:
    if [*quantiles] != sorted({*quantiles}) or 0.5 not in quantiles or not quantiles[0] > 0:
        raise ValueError(
            f"task.quantiles is {[*quantiles]}: expected rising numbers between 0 and 1 with 0.5 among them, such as "
            "[0.1, 0.5, 0.9]"
        )
    return quantiles


class ForecastingTask(SeriesTask):
    """From a window of numbers to the next numbers, or to numbers of the same time that are not read."""

    kind: Literal["forecasting"]
    horizon: Annotated[Count, Field(le=10_000)] = Field(24, description="steps that are predicted together")
    ahead: Annotated[Place, Field(le=100_000)] = Field(
        1, description="steps from the last that is read to the first that is predicted; 0: at the same time"
    )
    predict: Annotated[tuple[str, ...], Field(max_length=1_000)] = Field(
        (), description="the columns that are predicted; none are named: all; with ahead = 0 they are not read"
    )
    season: Steps = Field(1, description="steps of a season, for the seasonal naive forecast and for MASE; 1: none")
    criterion: Literal["squared", "absolute", "quantile"] = Field(
        "squared", description="the loss: (y - ŷ)², |y - ŷ|, or that of quantiles, which gives intervals"
    )
    quantiles: Annotated[tuple[Fraction, ...], Field(min_length=1, max_length=99), AfterValidator(_levels)] = Field(
        (0.1, 0.5, 0.9), description="which quantiles are predicted, with task.criterion = quantile"
    )
    normalise: Normalise = Field(
        "window",
        description="numbers are read in units of each window's, or of the training data's, mean and deviation",
    )

    answer: ClassVar[str] = "numbers"
    defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "data": {"valid": 0.1, "test": 0.2},
        "model": {"family": "series_encoder"},
    }
    unused: ClassVar[dict[str, str]] = {**SeriesTask.unused, "train.smoothing": "numbers are predicted, not classes"}
    loss: ClassVar[Loss] = staticmethod(number_loss)
    loss_unit: ClassVar[str] = ""
    Run: ClassVar[type[Run]] = Forecaster

    @classmethod
    def likelihood(cls, rows: Sequence[Series]) -> float:
        """A series without labels is to be continued."""
        return 0.1 if any(row.labels for row in rows) else 0.8

    @property
    def levels(self) -> tuple[float, ...]:
        """The quantiles that the model predicts; one number where there are none."""
        return self.quantiles if self.criterion == "quantile" else (0.5,)

    def frame(self, columns: Sequence[str]) -> Frame:
        names = list(columns)
        predicted = tuple(names.index(name) for name in self.predict) or tuple(range(len(names)))
        read = tuple(at for at in range(len(names)) if self.ahead or at not in predicted)
        return Frame(self.window, self.horizon, self.ahead, read, predicted)

    @property
    def held_out_stride(self) -> int:
        return self.horizon

    def check(self, recipe: Recipe) -> None:
        """What is predicted is among the columns, and what is read can be brought to the same units."""
        names = list(recipe.source.columns)
        for name in self.predict:
            if name not in names:
                near = get_close_matches(name, names, n=1)
                known = f"did you mean {near[0]!r}?" if near else f"they are {', '.join(names[:10])}"
                raise ValueError(f"task.predict names {name!r}, which is not among source.columns: {known}")
        if repeated := [name for name in self.predict if self.predict.count(name) > 1]:
            raise ValueError(f"task.predict names {repeated[0]!r} twice")
        frame = self.frame(names)
        if not frame.read:
            raise ValueError("task.ahead is 0 and all columns are predicted: none is left to read; set task.predict")
        if not self.ahead and self.normalise == "window":
            raise ValueError('task.ahead is 0, so the predicted columns are not read: set task.normalise = "training"')
        if self.season >= self.window:
            raise ValueError(f"task.season is {self.season}: it must be below task.window, which is {self.window}")
        if self.criterion != "quantile" and self.quantiles != type(self).model_fields["quantiles"].default:
            raise ValueError('task.quantiles has no effect: it needs task.criterion = "quantile"')
        if self.horizon * len(frame.predicted) * len(self.levels) > MOST_NUMBERS:
            raise ValueError(
                f"task.horizon times the predicted columns and quantiles is more than {MOST_NUMBERS:,}: lower one"
            )
        super().check(recipe)

    def given(self, recipe: Recipe, vocabularies: tuple[int, ...], classes: int) -> dict[str, Any]:
        """How many numbers are predicted, too."""
        numbers = self.horizon * len(self.frame(recipe.source.columns).predicted) * len(self.levels)
        return {**super().given(recipe, vocabularies, classes), "numbers": numbers}

    def begin(self, model: nn.Module, corpus: Corpus) -> None:
        if self.normalise == "training":
            self.take_over(model, corpus, corpus.recipe.source.columns)

    def collator(self, recipe: Recipe, corpus: Corpus, model: nn.Module) -> NumberCollator:
        criterion = Criterion(self.criterion, self.levels)
        return NumberCollator(self.windows(recipe, corpus), criterion, self.normalise == "window")


def label_loss(learner: Learner, batch: LabelBatch) -> Tensor:
    """The summed loss of the labels."""
    return class_loss(learner.head(learner.hidden(batch.values)), batch.labels, learner.smoothing)


class SeriesClassificationTask(SeriesTask):
    """From a window of numbers to a label: the one of its last step."""

    kind: Literal["series-classification"]
    normalise: Normalise = Field(
        "training",
        description="numbers are read in units of the training data's, or of each window's, mean and deviation",
    )

    answer: ClassVar[str] = "series-classes"
    scores: ClassVar[tuple[str, ...]] = ("loss", "accuracy", "f1")
    defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "data": {"valid": 0.1, "test": 0.2},
        "model": {"family": "series_encoder"},
        "train": {"smoothing": 0.0, "watch": "accuracy"},
    }
    loss: ClassVar[Loss] = staticmethod(label_loss)
    Run: ClassVar[type[Run]] = SeriesClassifier

    @classmethod
    def likelihood(cls, rows: Sequence[Series]) -> float:
        """Labels are there to be predicted."""
        return 0.8 if any(row.labels for row in rows) else 0.0

    def frame(self, columns: Sequence[str]) -> Frame:
        return Frame(self.window, 0, 0, tuple(range(len(columns))), ())

    @property
    def held_out_stride(self) -> int:
        return self.window

    def check(self, recipe: Recipe) -> None:
        """There are labels."""
        if getattr(recipe.source, "label", "") is None:
            raise ValueError("source.label is missing: the name of the column of labels")
        super().check(recipe)

    def example(self, found: Series) -> Series:
        """A series with labels."""
        if not any(found.labels):
            raise BadRow("no labels", "the series has no label")
        return found

    def labels_of(self, example: Series) -> Iterable[str]:
        """Those of its steps; of a window that is scored, the last."""
        if len(example.values) == self.window:
            return (example.labels[-1],) if example.labels and example.labels[-1] is not None else ()
        return [label for label in example.labels if label is not None]

    def begin(self, model: nn.Module, corpus: Corpus) -> None:
        if self.normalise == "training":
            self.take_over(model, corpus, corpus.recipe.source.columns)

    def collator(self, recipe: Recipe, corpus: Corpus, model: nn.Module) -> LabelCollator:
        return LabelCollator(self.windows(recipe, corpus), self.normalise == "window")
