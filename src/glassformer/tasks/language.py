"""Language modelling: which token comes next, at every place of long rows of documents.

Documents stand end to end, and a row of training is a window on them. Nobody looks from one document into another,
positions begin anew with each, and no token is asked for that begins the next: so a window is worth what its documents
are worth by themselves, and no place is wasted on padding.

W windows, B windows in a batch, T length, D model width
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
class WindowBatch(Tensors):
    """Windows on documents, and the token after each of theirs."""

    text: Tensor  # (B, T)
    right: Tensor  # (B, T), the token after each
    asked: Tensor  # (B, T), True where that one is of the same document
    documents: Tensor | None  # (B, T), which document each token is from; None: each window shows one only
    tokens: int  # without padding
    answers: int

    @property
    def places(self) -> int:
        """The places of all windows."""
        return self.text.numel()


def language_loss(learner: Learner, batch: WindowBatch) -> Tensor:
    """The summed loss of the next tokens, given those before in the same document."""
    hidden = learner.hidden(batch.text, None, batch.documents)  # (B, T, D)
    return sequence_loss(
        hidden, batch.right, batch.asked, batch.answers, learner.head, learner.smoothing, learner.chunk
    )


class Windows:
    """Documents end to end, cut every `length` tokens: where each window begins (W), and how long it is (W, 2).

    The very last token is in no window: there is nothing to ask after it.
    """

    def __init__(self, documents: TokenPairs, length: int) -> None:
        self.flat, self.starts = documents.flat, documents.starts
        total = max(len(self.flat) - 1, 0)
        self.begins = np.arange(0, total, length, dtype=np.int64)
        sizes = np.minimum(length, total - self.begins)
        self.lengths = np.stack((sizes, np.zeros_like(sizes)), axis=1).astype(np.int32)


@dataclass(frozen=True)
class WindowCollator:
    """Makes batches of windows."""

    pairs: Windows
    pad: int

    def __call__(self, rows: NDArray[Any], dice: np.random.Generator) -> WindowBatch:
        """A batch of some windows."""
        windows = self.pairs
        begins, sizes = windows.begins[rows], windows.lengths[rows, 0].astype(np.int64)  # (B), (B)
        text, real = gathered(windows.flat, begins, sizes, self.pad)  # (B, T)
        right, _ = gathered(windows.flat, begins + 1, sizes, self.pad)  # (B, T)
        places = begins[:, None] + np.arange(text.shape[1] + 1)
        numbers = np.searchsorted(windows.starts, places, side="right")  # (B, T + 1)
        asked = real & (numbers[:, 1:] == numbers[:, :-1])
        packed = bool((real & (numbers[:, :-1] != numbers[:, :1])).any())
        return WindowBatch(
            text=torch.from_numpy(text),
            right=torch.from_numpy(right),
            asked=torch.from_numpy(asked),
            documents=torch.from_numpy(numbers[:, :-1].astype(np.int64)) if packed else None,
            tokens=int(sizes.sum()),
            answers=int(asked.sum()),
        )
