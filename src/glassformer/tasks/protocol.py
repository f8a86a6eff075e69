"""What a task is to training: batches of its examples, and the loss of a model on each.

B batch, T length, D model width
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Protocol, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.data.planning import Shape, Stream
from glassformer.tasks.losses import Chunk


class Batch(Protocol):
    """Examples to learn from together. What is in it, the task's own loss knows."""

    @property
    def targets(self) -> int:
        """How many predictions the loss sums over."""

    @property
    def tokens(self) -> int:
        """How many real tokens, or what else is read and written, there are."""

    @property
    def padded_tokens(self) -> int:
        """How many tokens there are with padding."""

    def fitted(self, shape: Shape) -> Batch:
        """The same batch in a stream or in one of a grid's few shapes; itself, where its shape stays as it is."""

    def pin(self) -> Batch:
        """The same batch in page-locked memory, from which a GPU copies by itself."""

    def to(self, device: torch.device) -> Batch:
        """The same batch on a device, without waiting for it."""


class Learner(Protocol):
    """What a loss sees of the model that learns: `hidden` gives the vectors that the head reads."""

    hidden: Callable[..., Tensor]
    smoothing: float  # of the labels, from 0 to 1
    consistency: float  # the weight of the divergence between two passes with different dropout; 0: one pass
    chunk: Chunk  # how the loss of some words is computed

    @property
    def head(self) -> nn.Module:
        """What reads the answer off the hidden vectors."""


Loss = Callable[[Learner, Any], Tensor]  # the summed loss of a batch


class Tensors:
    """How a batch that is a dataclass of tensors and numbers moves, and is brought into another shape.

    `axes` has a letter for each dimension of each tensor: B for rows, others for lengths. It says that steps on such
    batches can be captured, as nothing in them waits for the device. A batch without axes keeps its shape.
    """

    axes: ClassVar[Mapping[str, str]] = {}

    def fitted(self, shape: Shape) -> Self:
        """The same batch with more padding; a task's batch says here what else changes with its shape."""
        if isinstance(shape, Stream):
            raise TypeError(f"a {type(self).__name__} cannot be packed into a stream")
        if not self.axes:
            return self
        found: dict[str, int] = {}
        for name, letters in self.axes.items():
            if (tensor := getattr(self, name)) is not None:
                found |= dict(zip(letters, tensor.shape, strict=True))
        rows = found.pop("B")
        sizes = dict(zip(found, shape.lengths(np.array([*found.values()], np.int32)).tolist(), strict=True))
        sizes["B"] = shape.rows(rows, max(sizes.values()))
        return replace(self, **{name: self._padded(name, sizes) for name in self.axes})  # type: ignore[type-var]

    def _padded(self, name: str, sizes: Mapping[str, int]) -> Tensor | None:
        tensor: Tensor | None = getattr(self, name)
        if tensor is None:
            return None
        missing = [sizes[letter] - size for letter, size in zip(self.axes[name], tensor.shape, strict=True)]
        widths = [width for more in reversed(missing) for width in (0, more)]  # the last dimension comes first
        return F.pad(tensor, widths)

    def _each(self, change: Callable[[Tensor], Tensor]) -> Self:
        moved = {name: change(value) for name, value in vars(self).items() if isinstance(value, Tensor)}
        return replace(self, **moved)  # type: ignore[type-var]

    def pin(self) -> Self:
        """The same in page-locked memory, from which copies to a GPU need not be waited for."""
        return self._each(lambda tensor: tensor.pin_memory())

    def to(self, device: torch.device | str) -> Self:
        """The same on a device."""
        return self._each(lambda tensor: tensor.to(device, non_blocking=True))
