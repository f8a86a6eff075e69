"""Measures: what a model says of new examples, how good that is, and what work costs.

B batch, T length, V vocabulary
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import thread_time
from typing import TypeVar

import torch
from torch import Tensor, nn

from glassformer.tasks.objective import Objective
from glassformer.tasks.protocol import Batch, Loss

Result = TypeVar("Result")


@torch.no_grad()
def logits(model: nn.Module, *inputs: Tensor) -> Tensor:
    """What a model says in use."""
    return model.eval()(*inputs)  # type: ignore[no-any-return]


@torch.no_grad()
def mean_loss(model: nn.Module, batch: Batch, loss: Loss) -> float:
    """The loss of a model in use on a batch, per target."""
    return Objective(model.eval(), loss)(batch).item() / batch.targets  # type: ignore[no-any-return]


def accuracy(scores: Tensor, labels: Tensor) -> float:
    """How often the highest of the scores (B, …, V) is that of the label (B, …)."""
    return (scores.argmax(dim=-1) == labels).float().mean().item()


def accuracy_by_place(scores: Tensor, labels: Tensor) -> list[float]:
    """How often the highest of the scores (B, T, V) is that of the label (B, T), at each place."""
    return (scores.argmax(dim=-1) == labels).double().mean(dim=0).tolist()


def still_falling(course: Sequence[float]) -> float:
    """How much of all that a loss has fallen fell in the last quarter of a training: near 0 once its curve has settled.

    The `course` is the loss at even distances, from before the first step to after the last.
    """
    start, before, end = course[0], course[round(0.75 * (len(course) - 1))], course[-1]
    return (before - end) / abs(start - end) if start != end else 0.0


def parameters(model: nn.Module) -> int:
    """How many numbers of a model learn."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


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
