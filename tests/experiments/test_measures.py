"""Timing counts what the work itself costs."""

import time

import torch

from glassformer.experiments.measures import quickest


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
