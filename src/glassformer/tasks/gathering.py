"""Gathering: rows of the store side by side, as batches of texts and of what is to be predicted for them.

B rows in a batch, S and T the lengths of their sides, D model width
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from glassformer.data import Corpus, Rows
from glassformer.tasks.losses import sequence_loss
from glassformer.tasks.protocol import Learner, Tensors

Tokens = NDArray[np.int64]
Choice = NDArray[np.bool_]


def gathered(flat: NDArray[Any], starts: Tokens, lengths: Tokens, pad: int, more: int = 0) -> tuple[Tokens, Choice]:
    """Parts of a flat array as padded rows (B, S), with `more` padding at the end, and which tokens are real."""
    positions = np.arange(int(lengths.max()) + more)
    mask = positions < lengths[:, None]
    index = np.minimum(starts[:, None] + positions, len(flat) - 1)
    return np.where(mask, flat[index].astype(np.int64), pad), mask


def both_sides(pairs: Rows, rows: NDArray[Any], pad: int) -> tuple[Tokens, Choice, Tokens]:
    """What is read in some rows (B, S), which of its tokens are real, and what is predicted (B, T), padded with 0."""
    lengths, starts = pairs.lengths[rows].astype(np.int64), pairs.starts[rows]  # (B, 2), (B)
    source, mask = gathered(pairs.flat, starts, lengths[:, 0], pad)
    target, _ = gathered(pairs.flat, starts + lengths[:, 0], lengths[:, 1], 0)
    return source, mask, target


# --- labels at positions of a text: tags, hidden tokens, next tokens


@dataclass(frozen=True)
class TokenBatch(Tensors):
    """Texts, and what is to be predicted at some of their positions."""

    text: Tensor  # (B, S)
    labels: Tensor  # (B, S)
    label_mask: Tensor  # (B, S), True where there is a label
    documents: Tensor | None  # (B, S), which document each token is from; None: each row shows only one
    tokens: int  # without padding
    targets: int
    mask: Tensor | None = None  # (B, S), True where there is a token; None: only what comes before is looked at

    @property
    def padded_tokens(self) -> int:
        """All tokens of all texts, padding included."""
        return self.text.numel()


def token_loss(learner: Learner, batch: TokenBatch) -> Tensor:
    """The summed loss of the labels."""
    hidden = learner.hidden(batch.text, batch.mask, batch.documents)  # (B, S, D)
    words = batch.labels, batch.label_mask, batch.targets
    return sequence_loss(hidden, *words, learner.head, learner.smoothing, learner.chunk)


# --- one thing to predict of each text: its label, or where an answer stands in it


@dataclass(frozen=True)
class TextBatch(Tensors):
    """Texts, or pairs of texts that are read together, and what is to be predicted of each."""

    text: Tensor  # (B, S)
    mask: Tensor  # (B, S), True where there is a token
    segments: Tensor | None  # (B, S), 1 in the second of two texts
    labels: Tensor  # (B), or (B, 2) for the positions of an answer's first and last token
    tokens: int  # without padding

    @property
    def targets(self) -> int:
        """One a text, or two."""
        return self.labels.numel()

    @property
    def padded_tokens(self) -> int:
        """All tokens of all texts, padding included."""
        return self.text.numel()


@dataclass(frozen=True)
class TextCollator:
    """Makes batches of framed texts; `between` is the token after each text, where the model is told segments."""

    pairs: Rows
    pad: int
    between: int | None

    @classmethod
    def of(cls, corpus: Corpus, model: nn.Module) -> TextCollator:
        """For a model that learns from a corpus."""
        tokenizer = corpus.assets.tokenizers[0]
        return cls(corpus.splits["train"], tokenizer.pad, tokenizer.end if uses_segments(model) else None)

    def __call__(self, rows: NDArray[Any], rng: np.random.Generator) -> TextBatch:
        source, mask, target = both_sides(self.pairs, rows, self.pad)
        text = torch.from_numpy(source)
        return TextBatch(
            text=text,
            mask=torch.from_numpy(mask),
            segments=None if self.between is None else segments_of(text, self.between),
            labels=torch.from_numpy(target).squeeze(1),  # (B) or (B, 2)
            tokens=int(mask.sum()),
        )


def segments_of(tokens: Tensor, between: int) -> Tensor:
    """Which of two framed texts each token (B, S) belongs to: the second begins after the first `between`."""
    ends = tokens == between
    return (ends.cumsum(dim=1) - ends.long()).clamp_max(1)


def uses_segments(model: nn.Module) -> bool:
    """Whether the model is told which of two texts a token is from."""
    blueprint: Any = getattr(model, "blueprint", None)
    return blueprint is not None and bool(blueprint.arguments.get("segments", 1) > 1)
