"""Classification: a text, or two, is read whole, and one of a few labels is the answer.

B texts in a batch, T length, C classes
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glassformer.tasks.gathering import gathered
from glassformer.tasks.losses import class_loss
from glassformer.tasks.protocol import Learner, Tensors

if TYPE_CHECKING:
    from glassformer.data import TokenPairs


@dataclass(frozen=True)
class TextBatch(Tensors):
    """Texts to be told apart, and what is right for each."""

    text: Tensor  # (B, T)
    mask: Tensor  # (B, T), True where there is a token
    segments: Tensor | None  # (B, T), 1 in the second of two texts
    right: Tensor  # (B), the number of the label
    tokens: int  # without padding

    @property
    def answers(self) -> int:
        """One a text."""
        return len(self.right)

    @property
    def places(self) -> int:
        """The places of all texts."""
        return self.text.numel()


def classification_loss(learner: Learner, batch: TextBatch) -> Tensor:
    """The summed loss of the right labels."""
    logits = learner.head(learner.hidden(batch.text, batch.mask, batch.segments))  # (B, C)
    return class_loss(logits, batch.right, learner.smoothing)


def segments_of(tokens: Tensor, between: int) -> Tensor:
    """Which of two framed texts each token (B, T) belongs to: the second begins after the first `between`."""
    ends = tokens == between
    return (ends.cumsum(dim=1) - ends.long()).clamp_max(1)


@dataclass(frozen=True)
class TextCollator:
    """Makes batches of framed texts and labels; `between` is the token after each text, where segments are told."""

    pairs: TokenPairs
    pad: int
    between: int | None

    def __call__(self, rows: NDArray[Any], dice: np.random.Generator) -> TextBatch:
        """A batch of some rows."""
        lengths, starts = self.pairs.lengths[rows].astype(np.int64), self.pairs.starts[rows]  # (B, 2), (B)
        tokens, mask = gathered(self.pairs.flat, starts, lengths[:, 0], self.pad)  # (B, T)
        text = torch.from_numpy(tokens)
        return TextBatch(
            text=text,
            mask=torch.from_numpy(mask),
            segments=None if self.between is None else segments_of(text, self.between),
            right=torch.from_numpy(self.pairs.flat[starts + lengths[:, 0]].astype(np.int64)),
            tokens=int(lengths[:, 0].sum()),
        )
