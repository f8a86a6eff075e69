"""What a task is to training: batches of its examples, and the loss of a model on each.

B batch, T length, D model width
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol, Self

import torch
from torch import Tensor, nn

from glassformer.tasks.losses import Chunk


class Batch(Protocol):
    """Examples to learn from together. What is in it, the task's own loss knows."""

    @property
    def answers(self) -> int:
        """How many answers are asked for: the loss is a sum over them."""
        ...

    @property
    def tokens(self) -> int:
        """How many real tokens, or what else is read and written, there are."""
        ...

    @property
    def places(self) -> int:
        """How many there are with padding."""
        ...

    def pin(self) -> Batch:
        """The same batch in page-locked memory, from which a GPU copies by itself."""
        ...

    def to(self, device: torch.device) -> Batch:
        """The same batch on a device, without waiting for it."""
        ...


class Learner(Protocol):
    """What a loss sees of the model that learns."""

    @property
    def hidden(self) -> Callable[..., Tensor]:
        """The model's inputs to the vectors that its head reads."""
        ...

    @property
    def head(self) -> nn.Module:
        """What reads the answer off the hidden vectors."""
        ...

    @property
    def smoothing(self) -> float:
        """The share of label smoothing."""
        ...

    @property
    def chunk(self) -> Chunk:
        """How the loss of some words is computed."""
        ...

    @property
    def aware(self) -> bool:
        """Whether some norm wants to know which target tokens are padding."""
        ...


Loss = Callable[[Learner, Any], Tensor]  # the summed loss of a batch


class Tensors:
    """How a batch that is a dataclass of tensors and numbers moves."""

    def _each(self, change: Callable[[Tensor], Tensor]) -> Self:
        moved = {name: change(value) for name, value in vars(self).items() if isinstance(value, Tensor)}
        return replace(self, **moved)  # type: ignore[type-var]

    def pin(self) -> Self:
        """The same in page-locked memory, from which copies to a GPU need not be waited for."""
        return self._each(lambda tensor: tensor.pin_memory())

    def to(self, device: torch.device | str) -> Self:
        """The same on a device."""
        return self._each(lambda tensor: tensor.to(device, non_blocking=True))
