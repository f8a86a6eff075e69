"""Timing in an experiment: what work costs, whoever else is at work on the same machine."""

from __future__ import annotations

from collections.abc import Callable
from time import thread_time
from typing import TypeVar

import torch

Result = TypeVar("Result")


def quickest(work: Callable[[], Result], rounds: int) -> tuple[Result, float]:
    """What some work gives, and the seconds that a processor needs for it on one thread: the least of some rounds.

    The clock on the wall would also count the time in which others have the processor.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    least = float("inf")
    try:
        for _ in range(rounds):
            start = thread_time()
            result = work()
            least = min(least, thread_time() - start)
    finally:
        torch.set_num_threads(threads)
    return result, least
