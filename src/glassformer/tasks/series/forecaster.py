"""A forecaster: a trained model that continues series, in use, and how good its forecasts are.

W windows, T steps that are read, h steps that are predicted, C columns, P columns that are predicted, Q quantiles
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from glassformer.data.examples import Series
from glassformer.errors import InputError
from glassformer.evaluation.bootstrap import Statistic
from glassformer.evaluation.forecasts import ForecastScores, coverage, naive, scales, seasonal_naive
from glassformer.evaluation.judging import Judged
from glassformer.looking.plots.series import ForecastPanel, attention_over_time, forecast_figure
from glassformer.looking.points import points
from glassformer.looking.trace import Trace
from glassformer.tasks.run import Evaluation, Progress, check_list
from glassformer.tasks.series.reading import SeriesRun, times_after
from glassformer.tasks.series.windows import Criterion, Values, cut, table
from glassformer.tasks.showing import Part, Picture, Reply, Sample, Score

SHOWN_STEPS = 5  # of a forecast, in a line
DRAWN = 4  # forecasts in a picture


@dataclass(frozen=True)
class Forecast:
    """What comes after a series: for each step its time, and a number for each predicted column.

    With quantiles, `values` are the medians, and `quantiles` has such a table for each quantile, by its name: "0.1".
    """

    series: str
    columns: list[str]
    times: list[str]  # h
    values: list[list[float]]  # (h, P)
    quantiles: dict[str, list[list[float]]]

    @property
    def header(self) -> list[str]:
        """The names of the columns of `rows`: the time, each predicted column, and its quantiles."""
        of_quantiles = [f"{column} {level}" for column in self.columns for level in self.quantiles]
        return ["time", *self.columns, *of_quantiles]

    def rows(self) -> list[list[str]]:
        """The forecast as a table of texts, a row for each step."""
        found = []
        for step, time in enumerate(self.times):
            others = [tables[step][at] for at in range(len(self.columns)) for tables in self.quantiles.values()]
            found.append([time, *(f"{value:.6g}" for value in (*self.values[step], *others))])
        return found


@dataclass(frozen=True)
class ForecastEvaluation(Evaluation):
    """How forecasts of windows do, beside those that need no model."""

    loss: float  # as training measures it
    windows: list[Series]
    found: Values  # (W, h, P, Q)
    scores: ForecastScores
    baselines: dict[str, ForecastScores]
    columns: list[str]
    levels: tuple[float, ...]

    @property
    def interval_scores(self) -> tuple[float, float, float] | None:
        """The outer quantiles' interval: how many values should be in it, how many are, and how wide it is."""
        if len(self.levels) < 2:
            return None
        held, width = coverage(self.found[..., 0], self.found[..., -1], self.scores.truth)
        return self.levels[-1] - self.levels[0], held, width

    def resampled(self) -> tuple[int, dict[str, Statistic]]:
        return len(self.windows), self.scores.statistics()

    def summary(self) -> dict[str, float]:
        found = {"loss": self.loss, "mae": self.scores.mae, "rmse": self.scores.rmse}
        if not np.isnan(self.scores.mase):  # it has no meaning where histories never change
            found["mase"] = self.scores.mase
        if self.interval_scores is not None:
            found["coverage"] = self.interval_scores[1]
        return found

    def facts(self) -> dict[str, Any]:
        """The scores, those of the baselines and of each column, and what the interval holds."""
        found: dict[str, Any] = {"windows": len(self.windows), **self.summary()}
        found["baselines"] = {name: _facts(scores) for name, scores in self.baselines.items()}
        found["columns"] = {
            name: _facts(ForecastScores(*(each[..., at : at + 1] for each in _arrays(self.scores))))
            for at, name in enumerate(self.columns)
        }
        if self.interval_scores is not None:
            wanted, held, width = self.interval_scores
            found["interval"] = {"expected": wanted, "coverage": held, "width": width}
        return found

    def table(self) -> list[Score]:
        rows = [self.score("MAE", self.scores.mae, ".4g", "mae"), self.score("RMSE", self.scores.rmse, ".4g")]
        if not np.isnan(self.scores.mase):
            rows.append(self.score("MASE", self.scores.mase, ".3f", "mase"))
        if self.interval_scores is not None:
            wanted, held, width = self.interval_scores
            note = f"the interval should hold {wanted:.0%}; it is {width:.4g} wide on average"
            rows.append(self.score("coverage", held, ".1%", note=note))
        for name, scores in self.baselines.items():
            mase = "" if np.isnan(scores.mase) else f"MASE {scores.mase:.3f}"
            rows.append(Score(name, f"MAE {scores.mae:.4g}", note=mase))
        return rows

    def lines(self) -> list[str]:
        count, (_, steps, _) = len(self.windows), self.scores.truth.shape
        lines = [f"{count:,} windows, {steps} step{'s' * (steps > 1)} after each:"]
        return lines + [f"  {each.name:<15} {each}" for each in self.table()]


def _arrays(scores: ForecastScores) -> tuple[Values, Values, Values]:
    return scores.forecast, scores.truth, scores.scale


def _facts(scores: ForecastScores) -> dict[str, float | None]:
    mase = scores.mase
    return {"mae": scores.mae, "rmse": scores.rmse, "mase": None if np.isnan(mase) else mase}


class Forecaster(SeriesRun):
    """A trained model that continues series: `run.forecast(["data.csv"])`."""

    @property
    def predicted_columns(self) -> list[str]:
        """The names of the columns that are predicted."""
        return [self.columns[at] for at in self.frame.predicted]

    @property
    def levels(self) -> tuple[float, ...]:
        """The quantiles that are predicted."""
        levels: tuple[float, ...] = self.task.levels
        return levels

    def forecast(self, items: Sequence[Any], progress: Progress | None = None) -> list[Forecast]:
        check_list(items, "forecast")
        windows = self.given(items)
        if not windows:
            return []
        found = self.predictions(self.history(windows))  # (W, h, P, Q)
        if progress is not None:
            progress(len(items), len(items))
        middle, made = self.levels.index(0.5), []
        for window, numbers in zip(windows, found, strict=True):
            levels = {f"{level:g}": numbers[..., at].tolist() for at, level in enumerate(self.levels)}
            times = times_after(window, self.task.horizon, self.task.ahead)
            others = levels if len(levels) > 1 else {}
            made.append(Forecast(window.name, self.predicted_columns, times, numbers[..., middle].tolist(), others))
        return made

    def predictions(self, history: Values) -> Values:
        """What is predicted after what is read (W, T, C), in the units of the data: (W, h, P, Q), quantiles rising."""
        numbers = self.answers(history).double().numpy().reshape(len(history), self.task.horizon, -1, len(self.levels))
        level, spread = self._units(history)  # (W, 1, P, 1)
        found: Values = np.sort(numbers, axis=-1) * spread + level
        return found

    def _units(self, history: Values) -> tuple[Values, Values]:
        """The level and the spread of the predicted columns, (W, 1, P, 1)."""
        level, spread = self.standard(history)
        if self.task.normalise == "window":
            places = [self.frame.read.index(at) for at in self.frame.predicted]
            level, spread = level[..., places], spread[..., places]
        return level[..., None], spread[..., None]

    def evaluate(self, examples: Sequence[Series], progress: Progress | None = None) -> ForecastEvaluation:
        """Forecast what follows each window, and compare with what did, and with forecasts that need no model."""
        frame, task = self.frame, self.task
        windows = [window for each in examples for window in cut(each, frame, task.held_out_stride)]
        if not windows:
            raise InputError(f"there is nothing to evaluate: no series has {frame.steps:,} steps with values")
        values = np.stack([table(window) for window in windows])  # (W, steps, C)
        truth, history = frame.truth(values), frame.history(values)
        found = self.predictions(history)
        if progress is not None:
            progress(len(examples), len(examples))
        middle = found[..., self.levels.index(0.5)]
        if task.ahead:
            past = values[:, : frame.window, frame.predicted]
            scale = scales(past, task.season)
            plain = {"naive": naive(past, task.horizon)}
            if task.season > 1:
                plain["seasonal naive"] = seasonal_naive(past, task.horizon, task.season, task.ahead)
        else:
            scale = np.full((len(windows), len(frame.predicted)), np.nan)
            mean = self.model.head.mean.cpu().double().numpy().reshape(task.horizon, -1, len(self.levels))[..., 0]
            plain = {"training mean": np.broadcast_to(mean, truth.shape)}
        return ForecastEvaluation(
            loss=self._loss(found, truth, history),
            windows=windows,
            found=found,
            scores=ForecastScores(middle, truth, scale),
            baselines={name: ForecastScores(each, truth, scale) for name, each in plain.items()},
            columns=self.predicted_columns,
            levels=self.levels,
        )

    def _loss(self, found: Values, truth: Values, history: Values) -> float:
        """The mean loss of known values, as training measures it."""
        spread = self._units(history)[1]
        deviations = self.model.head.deviation.cpu().double().numpy().reshape(found.shape[1:])
        errors = (truth[..., None] - found) / (spread * deviations)
        losses = Criterion(self.task.criterion, self.levels)(torch.from_numpy(errors))
        return float(losses[~torch.from_numpy(np.isnan(truth))].mean())

    def judge(self, examples: Sequence[Series], progress: Progress | None = None) -> Judged:
        scores = self.evaluate(examples, progress).scores
        counts = scores.known.sum(axis=(1, 2))
        errors = np.nansum(scores.errors, axis=(1, 2))
        return Judged("absolute error", "lower", errors.tolist(), counts.astype(float).tolist())

    # --- what is shown

    def samples(self, examples: Sequence[Series], found: ForecastEvaluation) -> list[Sample]:
        """The first column of some windows: the last values, the forecast, and what followed."""
        made = []
        for row in self.rows_shown(found.windows):
            scores, at = found.scores, 0
            past = table(found.windows[row])[: self.frame.window, self.frame.predicted[at]]
            right, said = scores.truth[row, :, at], scores.forecast[row, :, at]
            error = np.abs(right - said)[~np.isnan(right)]
            made.append(
                Sample(
                    f"{found.windows[row].name}: … {_numbers(past[-SHOWN_STEPS:])}",
                    _numbers(said),
                    _numbers(right),
                    not error.mean() > scores.scale[row, at] if len(error) else True,  # as good as the naive is there
                    called="truth",
                    detail=f"(mean error {error.mean():.3g})" if len(error) else "",
                    whole=True,
                )
            )
        return made

    def pictures(self, examples: Sequence[Series], found: ForecastEvaluation) -> list[Picture]:
        """Forecasts against the truth; and which steps the model looks at, if it has attention."""
        rows = self.rows_shown(found.windows, DRAWN)
        panels = [self.panel(found.windows[row], found.found[row]) for row in rows]
        figure = forecast_figure(panels, self.recipe.title, self.task.season)
        caption = "Forecasts of windows that were kept out of training, beside what really followed."
        return [Picture("forecast", caption, figure), *self._attention(found.windows[rows[0]])]

    def panel(self, window: Series, numbers: Values) -> ForecastPanel:
        """What is drawn of a forecast (h, P, Q): the history and the truth of its first column, and the forecast."""
        column = self.predicted_columns[0]
        values = table(window)[:, window.columns.index(column)] if column in window.columns else np.full(0, np.nan)
        return ForecastPanel(
            f"{window.name}, {column}",
            values[: self.frame.window],
            {level: numbers[:, 0, at] for at, level in enumerate(self.levels)},
            values[self.frame.first :] if len(values) == self.frame.steps > self.frame.window else values[:0],
            self.task.ahead,
        )

    def panel_of(self, window: Series, found: Forecast) -> ForecastPanel:
        """What is drawn of a forecast whose truth is not known."""
        tables = found.quantiles or {"0.5": found.values}
        numbers = np.stack([np.array(each) for each in tables.values()], axis=-1)  # (h, P, Q)
        return self.panel(window, numbers)

    def _attention(self, window: Series) -> list[Picture]:
        if not any(name.endswith("self.weights") for name in points(self)):
            return []
        trace = self.look(window, keep="weights")
        history = self.history([window])[0]
        figure = attention_over_time(trace, history[:, 0], f"{window.name}: what the last step looks at")
        return [Picture("attention", "How much each head of each layer looks at each step, from the last one.", figure)]

    def output_of(self, text: Any) -> str:
        return _numbers(np.array(self.forecast([text])[0].values)[:, 0])

    def reply(self, text: Any, trace: Trace) -> Reply:
        """The forecast of each column, in a line with its name."""
        found, parts = self.forecast([text])[0], list[Part]()
        for at, column in enumerate(found.columns):
            line = _numbers(np.array(found.values)[:, at])
            parts += [Part(f"{column}: " if at == 0 else f"\n{column}: "), Part(line, marked=True)]
        return Reply(tuple(parts))

    @property
    def answer_names(self) -> list[str]:
        """The column and the step of each number, and its quantile."""
        several = len(self.levels) > 1
        return [
            f"{column} +{self.task.ahead + step}" + (f" {level:g}" if several else "")
            for step in range(self.task.horizon)
            for column in self.predicted_columns
            for level in self.levels
        ]

    def next_commands(self, examples: Sequence[Series]) -> list[str]:
        return ["forecast --run RUN data.csv", "forecast --run RUN data.csv --out forecast.png", "evaluate --run RUN"]


def _numbers(values: Values) -> str:
    shown = " ".join("?" if np.isnan(each) else f"{each:.3g}" for each in values[:SHOWN_STEPS])
    return shown + (" …" if len(values) > SHOWN_STEPS else "")
