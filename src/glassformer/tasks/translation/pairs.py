"""Pairs to learn from together, and the loss of a model on them.

B pairs in a batch, S source length, T target length, D model width, M sentences packed into a row
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from glassformer.data.planning import Shape, Stream
from glassformer.errors import TrainingError
from glassformer.parts.packing import Packed, Spans
from glassformer.tasks.losses import IGNORED, consistent_loss, sequence_loss
from glassformer.tasks.protocol import Learner, Tensors


@dataclass(frozen=True)
class PairBatch(Tensors):
    """Pairs in a row each. The decoder reads `target_in` and should write `target_out`, one token ahead."""

    source: Tensor  # (B, S)
    source_mask: Tensor  # (B, S), True where there is a token
    target_in: Tensor  # (B, T), the start and the target's tokens
    target_out: Tensor  # (B, T), the target's tokens and the end
    target_mask: Tensor  # (B, T)
    rows: Tensor  # (B), which pairs these are
    source_tokens: int  # without padding
    targets: int  # target tokens without padding, the end counted

    axes: ClassVar[Mapping[str, str]] = {
        "source": "BS",
        "source_mask": "BS",
        "target_in": "BT",
        "target_out": "BT",
        "target_mask": "BT",
        "rows": "B",
    }

    def fitted(self, shape: Shape) -> PairBatch | PackedPairs:  # type: ignore[override]
        """The same in one of few shapes: all places are targets, and padding is one that does not count.

        A row of padding has a token to read, as all sentences have.
        """
        if isinstance(shape, Stream):
            return self.packed(shape)
        padded = super().fitted(shape)
        padded.source_mask[len(self.source) :, 0] = True
        right = padded.target_out.where(padded.target_mask, IGNORED)
        return replace(padded, target_out=right, targets=right.numel(), source_tokens=padded.source.numel())

    def packed(self, stream: Stream) -> PackedPairs:
        """The same in a row for each side, which is filled up with sentences that do not count."""
        read, written = self.source_mask, self.target_mask
        source_row, target_row = stream.tokens

        def row(tokens: Tensor, real: Tensor, size: int, filling: int) -> Tensor:
            found = tokens[real]
            if len(found) > size:
                raise TrainingError(f"a batch of {len(found)} tokens was planned to have {size} at most")
            return F.pad(found, (0, size - len(found)), value=filling)[None]

        return PackedPairs(
            source=row(self.source, read, source_row, 0),
            target_in=row(self.target_in, written, target_row, 0),
            target_out=row(self.target_out, written, target_row, IGNORED),
            source_starts=_starts(read.sum(dim=1), source_row, stream),
            target_starts=_starts(written.sum(dim=1), target_row, stream),
            longest=stream.longest,
            usual=stream.usual,
        )

    @property
    def inputs(self) -> tuple[Tensor, Tensor, Tensor]:
        """What a model reads."""
        return self.source, self.target_in, self.source_mask

    @property
    def tokens(self) -> int:
        """The real tokens of both sides."""
        return self.source_tokens + self.targets

    @property
    def padded_tokens(self) -> int:
        """All tokens of both sides, padding included."""
        return self.source.numel() + self.target_out.numel()


@dataclass(frozen=True)
class PackedPairs(Tensors):
    """Pairs one after another in a row for each side: all places are targets, and padding is one that does not count.

    Sentence by sentence the target's attend to the source's.
    """

    source: Tensor  # (1, S)
    target_in: Tensor  # (1, T)
    target_out: Tensor  # (1, T)
    source_starts: Tensor  # (M + 1), where each begins, and the end of the row
    target_starts: Tensor  # (M + 1)
    longest: int  # tokens of a sentence
    usual: int  # tokens that nearly all sentences stay within

    axes: ClassVar[Mapping[str, str]] = {"source": "BS", "target_in": "BT", "target_out": "BT"}

    def fitted(self, shape: Shape) -> PackedPairs:
        """As it is: it has the only shape of its stream."""
        return self

    @property
    def targets(self) -> int:
        """All places."""
        return self.target_out.numel()

    @property
    def tokens(self) -> int:
        """All tokens of both sides: which of them count is known to who packed them."""
        return self.padded_tokens

    @property
    def padded_tokens(self) -> int:
        """All tokens of both sides, padding included."""
        return self.source.numel() + self.target_out.numel()

    @property
    def target_mask(self) -> Tensor:
        """All places, (1, T)."""
        return torch.ones_like(self.target_out, dtype=torch.bool)

    @property
    def inputs(self) -> tuple[Tensor, Tensor, None, Spans]:
        """What a model reads, and where the sentences of both rows begin."""
        source, target = (Packed(each, self.longest, self.usual) for each in (self.source_starts, self.target_starts))
        return self.source, self.target_in, None, Spans(target, source)


def _starts(lengths: Tensor, size: int, stream: Stream) -> Tensor:
    """Where each sentence of a row begins, and its end; what is left is cut into sentences no longer than others."""
    ends = lengths.cumsum(0)
    more = torch.arange(1, stream.slots - len(lengths) + 1) * stream.longest
    filling = (lengths.sum() + more).clamp_max(size)
    return torch.cat((torch.zeros(1, dtype=ends.dtype), ends, filling)).int()


def hidden(learner: Learner, batch: PairBatch | PackedPairs, passes: int = 1) -> Tensor:
    """The vectors that the head reads, (B, T, D), of so many passes one after another."""
    repeated = (each.repeat(passes, 1) if isinstance(each, Tensor) and passes > 1 else each for each in batch.inputs)
    return learner.hidden(*repeated)


def translation_loss(learner: Learner, batch: PairBatch | PackedPairs) -> Tensor:
    """The summed loss of the target's words, given the source and the words before."""
    words = batch.target_out, batch.target_mask, batch.targets
    if learner.consistency:
        passes = hidden(learner, batch, 2)  # (2 B, T, D)
        return consistent_loss(passes, *words, learner.head, learner.smoothing, learner.consistency)
    return sequence_loss(hidden(learner, batch), *words, learner.head, learner.smoothing, learner.chunk)
