"""Tagging: a text is read whole, and each of its words gets one of a few tags.

B texts in a batch, T length, D model width
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glassformer.tasks.gathering import gathered
from glassformer.tasks.losses import sequence_loss
from glassformer.tasks.protocol import Learner, Tensors

if TYPE_CHECKING:
    from glassformer.data import TokenPairs


@dataclass(frozen=True)
class TagBatch(Tensors):
    """Texts, and what is right for the words that end with some of their tokens."""

    text: Tensor  # (B, T)
    mask: Tensor  # (B, T), True where there is a token
    right: Tensor  # (B, T), the number of the tag
    asked: Tensor  # (B, T), True where a word ends
    tokens: int  # without padding
    answers: int

    @property
    def places(self) -> int:
        """The places of all texts."""
        return self.text.numel()


def tagging_loss(learner: Learner, batch: TagBatch) -> Tensor:
    """The summed loss of the right tags."""
    hidden = learner.hidden(batch.text, batch.mask)  # (B, T, D)
    return sequence_loss(
        hidden, batch.right, batch.asked, batch.answers, learner.head, learner.smoothing, learner.chunk
    )


@dataclass(frozen=True)
class TagCollator:
    """Makes batches of framed texts and tags."""

    pairs: TokenPairs
    pad: int

    def __call__(self, rows: NDArray[Any], dice: np.random.Generator) -> TagBatch:
        """A batch of some rows."""
        lengths, starts = self.pairs.lengths[rows, 0].astype(np.int64), self.pairs.starts[rows]  # (B), (B)
        text, mask = gathered(self.pairs.flat, starts, lengths, self.pad)  # (B, T)
        right, _ = gathered(self.pairs.flat, starts + lengths, lengths, 0)  # (B, T), 0: nothing is asked
        return TagBatch(
            text=torch.from_numpy(text),
            mask=torch.from_numpy(mask),
            right=torch.from_numpy(np.maximum(right - 1, 0)),
            asked=torch.from_numpy(right > 0),
            tokens=int(lengths.sum()),
            answers=int((right > 0).sum()),
        )
