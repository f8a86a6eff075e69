"""Schedules against their formulas."""

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.recipe import Train
from glassformer.training.schedules import schedule

NAMES = ["inverse-sqrt", "cosine", "linear", "constant", "wsd"]


def made(name: Any, warmup: int = 10, steps: int = 30, **changes: Any) -> Callable[[int], float]:
    return schedule(Train(schedule=name, warmup=warmup, steps=steps, **changes))


@pytest.mark.parametrize("step", [1, 7, 399, 400, 401, 1600, 100_000])
def test_inverse_sqrt_is_the_papers_up_to_its_peak(step: int) -> None:
    width, warmup = 512, 400
    paper = width**-0.5 * min(step**-0.5, step * warmup**-1.5)
    peak = width**-0.5 * warmup**-0.5
    assert made("inverse-sqrt", warmup)(step) == pytest.approx(paper / peak)


def test_cosine_and_linear_at_worked_points() -> None:
    # ten steps of warm-up, then a fall from 10 to 31, of which 7, 10.5, 14 are a third, a half, two thirds
    cosine, linear, constant = made("cosine"), made("linear"), made("constant")
    assert cosine(17) == pytest.approx((1 + math.cos(math.pi / 3)) / 2)
    assert linear(17) == pytest.approx(2 / 3)
    assert linear(24) == pytest.approx(1 / 3)
    assert linear(30) == pytest.approx(1 / 21)
    assert cosine(10) == linear(10) == 1
    assert constant(5) == 0.5
    assert constant(99) == 1


def test_wsd_warms_up_stays_and_decays() -> None:
    shares = [made("wsd", 10, 100, decay=0.2)(step) for step in range(1, 101)]
    assert shares[:10] == pytest.approx([step / 10 for step in range(1, 11)])
    assert shares[9:80] == [1.0] * 71
    assert shares[80:] == pytest.approx([1 - step / 21 for step in range(1, 21)])


@pytest.mark.parametrize("name", NAMES)
@given(steps=st.integers(1, 200), warmup=st.integers(0, 250), decay=st.floats(0, 0.99))
def test_every_share_is_above_0_and_at_most_1(name: str, steps: int, warmup: int, decay: float) -> None:
    share = schedule(Train(steps=steps, warmup=warmup, decay=decay, schedule=name))
    shares = [share(step) for step in range(1, steps + 1)]
    assert all(0 < value <= 1 for value in shares)
    top = shares.index(max(shares))
    assert shares[: top + 1] == sorted(shares[: top + 1])
    assert shares[top:] == sorted(shares[top:], reverse=True)
