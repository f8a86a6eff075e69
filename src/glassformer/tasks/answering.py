"""Answering: a question and a context are read together, and two tokens of the context are pointed at.

    loss = -log p(first token of the answer) - log p(last token of the answer)

each p over the real tokens of the row; where the answer is not in it, both point to the start token.

B rows in a batch, T length
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from glassformer.tasks.classification import segments_of
from glassformer.tasks.gathering import gathered
from glassformer.tasks.protocol import Learner, Tensors

if TYPE_CHECKING:
    from glassformer.data import TokenPairs


@dataclass(frozen=True)
class SpanBatch(Tensors):
    """Questions beside stretches of their contexts, and where the answers are."""

    text: Tensor  # (B, T)
    mask: Tensor  # (B, T), True where there is a token
    segments: Tensor | None  # (B, T), 1 in the context
    right: Tensor  # (B, 2), the places of the answer's first and last token
    tokens: int  # without padding

    @property
    def answers(self) -> int:
        """Two a row: the first token and the last."""
        return self.right.numel()

    @property
    def places(self) -> int:
        """The places of all rows."""
        return self.text.numel()


def answering_loss(learner: Learner, batch: SpanBatch) -> Tensor:
    """The summed loss of the right places."""
    logits = learner.head(learner.hidden(batch.text, batch.mask, batch.segments))  # (B, T, 2)
    return span_loss(logits, batch.mask, batch.right, learner.smoothing)


def span_loss(logits: Tensor, mask: Tensor, right: Tensor, smoothing: float = 0.0) -> Tensor:
    """The loss of the right places (B, 2) under logits (B, T, 2) of the places where the mask (B, T) is True, summed.

    Label smoothing gives its share to all real tokens of a row alike.
    """
    real = mask[:, :, None]  # (B, T, 1)
    log_p = F.log_softmax(logits.float().masked_fill(~real, -torch.inf), dim=1)  # (B, T, 2)
    of_right = log_p.gather(1, right[:, None]).sum()
    if not smoothing:
        return -of_right
    spread = (log_p.masked_fill(~real, 0.0) / real.sum(dim=1, keepdim=True)).sum()
    return -(1 - smoothing) * of_right - smoothing * spread


@dataclass(frozen=True)
class SpanCollator:
    """Makes batches of windows and places; `between` is the token after the question, where segments are told."""

    pairs: TokenPairs
    pad: int
    between: int | None

    def __call__(self, rows: NDArray[Any], dice: np.random.Generator) -> SpanBatch:
        """A batch of some rows."""
        lengths, starts = self.pairs.lengths[rows].astype(np.int64), self.pairs.starts[rows]  # (B, 2), (B)
        tokens, mask = gathered(self.pairs.flat, starts, lengths[:, 0], self.pad)  # (B, T)
        right, _ = gathered(self.pairs.flat, starts + lengths[:, 0], lengths[:, 1], 0)  # (B, 2)
        text = torch.from_numpy(tokens)
        return SpanBatch(
            text=text,
            mask=torch.from_numpy(mask),
            segments=None if self.between is None else segments_of(text, self.between),
            right=torch.from_numpy(right),
            tokens=int(lengths[:, 0].sum()),
        )
