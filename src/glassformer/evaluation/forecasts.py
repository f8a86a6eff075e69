"""Scores of forecasts, beside those of forecasts that need no model.

    naive           the last known value, again and again
    seasonal naive  the value of one season before
    MASE            mean |y - ŷ| / mean |x_t - x_{t-m}| of the history: below 1, better than the seasonal naive is there

What is missing (NaN) takes no part.

W windows, T steps of history, h steps of a forecast, P columns, Q quantiles
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from glassformer.evaluation.bootstrap import Statistic, ratio

Values = NDArray[np.float64]


def naive(history: Values, horizon: int) -> Values:
    """The last known value of each column of each history (W, T, P), for each step of a forecast: (W, h, P)."""
    return np.repeat(_filled(history)[:, -1:], horizon, axis=1)


def seasonal_naive(history: Values, horizon: int, season: int, ahead: int = 1) -> Values:
    """The value one season before each step of a forecast, which begins `ahead` steps after the history: (W, h, P).

    Steps beyond one season repeat the last season. A season of 1 gives the naive forecast. Where the value of one
    season before is missing, the last known one before it is taken.
    """
    known = _filled(history)
    back = season - (np.arange(horizon) + ahead - 1) % season  # steps from the end of the history, 1 is the last
    return known[:, history.shape[1] - back]


def _filled(history: Values) -> Values:
    """A history (W, T, P) in which each missing value is the last known one before it; NaN where there is none."""
    steps = np.where(np.isnan(history), 0, np.arange(history.shape[1])[None, :, None])
    return np.take_along_axis(history, np.maximum.accumulate(steps, axis=1), axis=1)


def scales(history: Values, season: int) -> Values:
    """The mean |x_t - x_{t-m}| of each column of each history: (W, P); NaN where it is 0 or not known."""
    changes = np.abs(history[:, season:] - history[:, :-season])  # (W, T - m, P)
    count = (~np.isnan(changes)).sum(axis=1)
    found = np.where(count > 0, np.nansum(changes, axis=1) / np.maximum(count, 1), np.nan)
    return np.where(found > 0, found, np.nan)


@dataclass(frozen=True)
class ForecastScores:
    """How far forecasts (W, h, P) are from the truth; `scale` (W, P) is that of MASE."""

    forecast: Values
    truth: Values
    scale: Values

    @cached_property
    def errors(self) -> Values:
        """|y - ŷ|, NaN where one of them is missing."""
        return np.abs(self.truth - self.forecast)

    @property
    def known(self) -> NDArray[np.bool_]:
        """Which values take part, (W, h, P)."""
        return ~np.isnan(self.errors)

    @property
    def mae(self) -> float:
        """Mean absolute error."""
        return _mean(self.errors)

    @property
    def rmse(self) -> float:
        """Root mean squared error."""
        return float(np.sqrt(_mean(self.errors**2)))

    @property
    def mase(self) -> float:
        """Mean absolute scaled error; NaN if no history says how much its values change."""
        return _mean(self.errors / self.scale[:, None])

    def statistics(self) -> dict[str, Statistic]:
        """Each score of a sample of the windows, for the bootstrap."""
        scaled = self.errors / self.scale[:, None]
        return {
            name: ratio(np.nansum(values, axis=(1, 2)), (~np.isnan(values)).sum(axis=(1, 2)))
            for name, values in {"mae": self.errors, "mase": scaled}.items()
            if not np.isnan(values).all()
        }


def coverage(low: Values, high: Values, truth: Values) -> tuple[float, float]:
    """The fraction of true values within an interval (W, h, P), and how wide the interval is on average."""
    known = ~np.isnan(truth)
    inside = (low <= truth) & (truth <= high)
    return float(inside[known].mean()) if known.any() else float("nan"), float((high - low).mean())


def _mean(values: Values) -> float:
    return float(np.nanmean(values)) if not np.isnan(values).all() else float("nan")
