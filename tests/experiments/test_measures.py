"""Timing counts what the work itself costs; a curve that still falls has not settled."""

import time
from collections.abc import Callable

import pytest
import torch

from glassformer.experiments.measures import quickest, still_falling


def test_waiting_costs_nothing_and_work_is_done_on_one_thread() -> None:
    def nap() -> int:
        time.sleep(0.05)
        return torch.get_num_threads()

    before = torch.get_num_threads()
    found, seconds = quickest(nap, rounds=2)
    assert found == 1
    assert seconds < 0.02  # of the processor, none of which slept
    assert torch.get_num_threads() == before


def test_the_least_round_counts() -> None:
    numbers = iter([1, 10**6, 10**6])
    _, seconds = quickest(lambda: sum(range(next(numbers))), rounds=3)
    assert 0 <= seconds < 1e-3


def test_a_curve_has_settled_when_its_last_quarter_adds_nothing_to_its_fall() -> None:
    def told(curve: Callable[[float], float], parts: int = 16) -> float:
        return still_falling([curve(part / parts) for part in range(parts + 1)])

    assert told(lambda done: 3.0 - done) == pytest.approx(0.25)  # even steps to the end
    assert told(lambda done: 3.0 - done, 4) == pytest.approx(0.25)
    assert told(lambda done: max(3.0 - 4 * done, 0.5)) == 0
    assert told(lambda done: 3.0 / (1 + 100 * done)) < 0.01
    assert told(lambda done: 3.0 + done) == pytest.approx(-0.25)  # it gets worse
    assert told(lambda done: 1.0) == 0
