"""Scores of forecasts, worked by hand."""

import numpy as np
import pytest
from numpy.typing import NDArray

from glassformer.evaluation.forecasts import ForecastScores, coverage, naive, scales, seasonal_naive

HISTORY = np.array([[1.0, 5.0, 2.0, 7.0, np.nan, 6.0]]).reshape(1, 6, 1)


def flat(values: NDArray[np.float64]) -> list[float]:
    return [float(each) for each in values.ravel()]


def test_the_naive_forecast_is_the_last_known_value() -> None:
    assert flat(naive(HISTORY, 3)) == [6.0, 6.0, 6.0]
    assert flat(naive(HISTORY[:, :5], 2)) == [7.0, 7.0]


def test_the_seasonal_naive_forecast_repeats_the_last_season() -> None:
    assert flat(seasonal_naive(HISTORY, 5, 3)) == [7.0, 7.0, 6.0, 7.0, 7.0]  # the missing 4th is the 3rd
    assert flat(seasonal_naive(HISTORY, 2, 3, ahead=3)) == [6.0, 7.0]
    assert flat(seasonal_naive(HISTORY, 2, 1)) == [6.0, 6.0]


def test_mase_is_scaled_by_the_seasonal_changes_of_the_history() -> None:
    scale = scales(HISTORY, 2)  # |2-1|, |7-5|, unknown, |6-7|
    assert flat(scale) == pytest.approx([4 / 3])
    truth = np.array([[[8.0], [np.nan]]])
    found = ForecastScores(np.array([[[6.0], [1.0]]]), truth, scale)
    assert (found.mae, found.rmse, found.mase) == pytest.approx((2.0, 2.0, 1.5))


def test_a_history_that_never_changes_has_no_scale() -> None:
    scale = scales(np.ones((1, 5, 1)), 1)
    assert np.isnan(scale).all()
    found = ForecastScores(np.ones((1, 1, 1)), np.zeros((1, 1, 1)), scale)
    assert np.isnan(found.mase)
    assert "mase" not in found.statistics()


def test_coverage_counts_known_values_in_the_interval() -> None:
    truth = np.array([[[1.0], [2.0], [np.nan], [9.0]]])
    assert coverage(np.zeros((1, 4, 1)), np.full((1, 4, 1), 2.0), truth) == pytest.approx((2 / 3, 2.0))
