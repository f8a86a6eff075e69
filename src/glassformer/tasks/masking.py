"""Masked language modelling: some tokens are hidden, and what stood there is asked for.

As in BERT, of the chosen places 80 % show the mask, 10 % any other token, and 10 % what they always showed: the model
does not know which of the words it sees are right, and has to understand them all.

B texts in a batch, T length, D model width
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glassformer.tasks.gathering import Pairs, gathered
from glassformer.tasks.losses import sequence_loss
from glassformer.tasks.protocol import Learner, Tensors

if TYPE_CHECKING:
    from glassformer.data import TokenPairs
    from glassformer.text import Tokenizer

MASKED, REPLACED = 0.8, 0.1  # shares of the chosen places; the rest is left as it is
Tokens = NDArray[np.int64]
Choice = NDArray[np.bool_]


@dataclass(frozen=True)
class MaskedBatch(Tensors):
    """Texts with hidden tokens, and what they are."""

    text: Tensor  # (B, T), as it is shown
    mask: Tensor  # (B, T), True where there is a token
    right: Tensor  # (B, T), as it is
    asked: Tensor  # (B, T), True where a token was chosen
    tokens: int  # without padding
    answers: int

    @property
    def places(self) -> int:
        """The places of all texts."""
        return self.text.numel()


def masked_loss(learner: Learner, batch: MaskedBatch) -> Tensor:
    """The summed loss of what was hidden, given all else."""
    hidden = learner.hidden(batch.text, batch.mask)  # (B, T, D)
    return sequence_loss(
        hidden, batch.right, batch.asked, batch.answers, learner.head, learner.smoothing, learner.chunk
    )


def chosen(may: Choice, share: float, dice: np.random.Generator) -> Choice:
    """A share of the places (B, T) that may be chosen, and at least one in each text that has any."""
    count = np.maximum(np.rint(share * may.sum(axis=1)), 1)
    luck = np.where(may, dice.random(may.shape), np.inf)
    found: Choice = may & (luck.argsort(axis=1).argsort(axis=1) < count[:, None])
    return found


def hidden_at(text: Tokens, asked: Choice, mask: int, vocabulary: int, dice: np.random.Generator) -> Tokens:
    """The text (B, T) with its chosen tokens masked, replaced by any of the vocabulary, or left."""
    fate = dice.random(text.shape)
    others = dice.integers(vocabulary, size=text.shape)
    shown = np.where(asked & (fate < MASKED + REPLACED), others, text)
    return np.where(asked & (fate < MASKED), mask, shown)


@dataclass(frozen=True)
class Masker:
    """Hides tokens of framed texts: a share of those that are not special."""

    tokenizer: Tokenizer
    share: float

    def __call__(self, text: Tokens, real: Choice, dice: np.random.Generator) -> MaskedBatch:
        """A batch of texts (B, T)."""
        tokenizer = self.tokenizer
        asked = chosen(real & ~np.isin(text, sorted(tokenizer.special)), self.share, dice)
        shown = hidden_at(text, asked, tokenizer.mask, tokenizer.size, dice)
        return MaskedBatch(
            text=torch.from_numpy(shown),
            mask=torch.from_numpy(real),
            right=torch.from_numpy(text),
            asked=torch.from_numpy(asked),
            tokens=int(real.sum()),
            answers=int(asked.sum()),
        )


@dataclass(frozen=True)
class MaskCollator:
    """Makes batches of framed texts with other tokens hidden each time."""

    pairs: TokenPairs | Pairs
    hide: Masker

    def __call__(self, rows: NDArray[Any], dice: np.random.Generator) -> MaskedBatch:
        """A batch of some rows."""
        lengths, starts = self.pairs.lengths[rows, 0].astype(np.int64), self.pairs.starts[rows]  # (B), (B)
        text, real = gathered(self.pairs.flat, starts, lengths, self.hide.tokenizer.pad)  # (B, T)
        return self.hide(text, real, dice)
