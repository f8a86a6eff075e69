"""Translation: a source is read, a target is written; in training the right words before each are given.

B pairs in a batch, S source length, T target length, D model width
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glassformer.tasks.gathering import Pairs, gathered
from glassformer.tasks.losses import sequence_loss
from glassformer.tasks.protocol import Learner, Tensors

if TYPE_CHECKING:
    from glassformer.data import TokenPairs


class Specials(Protocol):
    """The special tokens of what is written, as a tokenizer has them, or a checkpoint."""

    @property
    def start(self) -> int:
        """What the decoder reads first."""
        ...

    @property
    def end(self) -> int:
        """What ends an output."""
        ...

    @property
    def pad(self) -> int:
        """What fills up."""
        ...


@dataclass(frozen=True)
class PairBatch(Tensors):
    """Pairs to learn from together. The decoder reads `target_in` and should write `target_out`, one token ahead."""

    source: Tensor  # (B, S)
    source_mask: Tensor  # (B, S), True where there is a token
    target_in: Tensor  # (B, T), the start and the target's tokens
    target_out: Tensor  # (B, T), the target's tokens and the end
    target_mask: Tensor  # (B, T)
    rows: Tensor  # (B), which pairs these are
    source_tokens: int  # without padding
    answers: int  # target tokens without padding, the end counted

    @property
    def tokens(self) -> int:
        """The real tokens of both sides."""
        return self.source_tokens + self.answers

    @property
    def places(self) -> int:
        """The places of both sides."""
        return self.source.numel() + self.target_out.numel()


def translation_loss(learner: Learner, batch: PairBatch) -> Tensor:
    """The summed loss of the target's words, given the source and the words before."""
    also = (batch.target_mask,) if learner.aware else ()  # nobody but a batch norm looks at the target's padding
    hidden = learner.hidden(batch.source, batch.target_in, batch.source_mask, *also)  # (B, T, D)
    words = batch.target_out, batch.target_mask, batch.answers
    return sequence_loss(hidden, *words, learner.head, learner.smoothing, learner.chunk)


@dataclass(frozen=True)
class PairCollator:
    """Makes batches of token pairs; `target` knows how outputs start and end."""

    pairs: TokenPairs | Pairs
    source_pad: int
    target: Specials

    def __call__(self, rows: NDArray[Any], dice: np.random.Generator) -> PairBatch:
        """A batch of some rows, gathered from the flat file at once."""
        pairs, target = self.pairs, self.target
        lengths, starts = pairs.lengths[rows].astype(np.int64), pairs.starts[rows]  # (B, 2), (B)
        source, source_mask = gathered(pairs.flat, starts, lengths[:, 0], self.source_pad)  # (B, S)
        tokens, _ = gathered(pairs.flat, starts + lengths[:, 0], lengths[:, 1], target.pad, 1)  # (B, T), the last free
        places = np.arange(tokens.shape[1])
        target_in = np.concatenate((np.full((len(rows), 1), target.start), tokens[:, :-1]), axis=1)  # (B, T)
        target_out = np.where(places == lengths[:, 1:], target.end, tokens)  # (B, T)
        return PairBatch(
            source=torch.from_numpy(source),
            source_mask=torch.from_numpy(source_mask),
            target_in=torch.from_numpy(target_in),
            target_out=torch.from_numpy(target_out),
            target_mask=torch.from_numpy(places <= lengths[:, 1:]),
            rows=torch.from_numpy(rows.astype(np.int64)),
            source_tokens=int(lengths[:, 0].sum()),
            answers=int(lengths[:, 1].sum()) + len(rows),
        )
