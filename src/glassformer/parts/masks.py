"""Masks: who may attend to whom. True = may attend, everywhere.

A mask is a value. It is built here, combined with `&`, and handed to attention:

    padding(keep) & causal()

Causality and windows stay words, not tables, until somebody needs the table, so that the fused kernel can skip the
future instead of reading a mask of it.

B batch, H heads, T query length, S key length
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from glassformer.errors import ConfigurationError, InputError
from glassformer.parts.packing import Packed, Spans


@dataclass(frozen=True, eq=False)
class Mask:
    """Which keys each query may attend to: a table, the past only, the last few only, or all of these at once."""

    allowed: Tensor | None = None  # boolean, broadcasts to (B, H, T, S)
    causal: bool = False
    window: int | None = None
    # The same table in the type of the scores, 0 where it allows and -inf elsewhere: made once for many layers. Only a
    # mask that leaves something to every query may have it.
    added: Tensor | None = None
    filled: Tensor | None = None  # (1): only so many keys, the first ones, are there yet; for a step in fixed memory
    spans: Spans | None = None  # sentences that are packed into rows, each of which attends to its own

    def __and__(self, other: Mask) -> Mask:
        """Attend only where both masks allow it."""
        tables = [mask for mask in (self, other) if mask.allowed is not None]
        windows = [mask.window for mask in (self, other) if mask.window is not None]
        is_causal, window = self.causal or other.causal, min(windows) if windows else None
        if self.spans is not None and other.spans is not None:
            raise ConfigurationError("two masks of packed sentences cannot be combined")
        spans = other.spans if self.spans is None else self.spans
        if len(tables) == 2:
            allowed = tables[0].allowed & tables[1].allowed  # type: ignore[operator]
            return Mask(allowed, is_causal, window, spans=spans)
        return replace(tables[0] if tables else Mask(), causal=is_causal, window=window, spans=spans)

    def select(self, sentences: Tensor) -> Mask:
        """The mask of some sentences of the batch; a table that all of them share stays as it is."""
        if self.allowed is None or self.allowed.dim() < 4 or self.allowed.shape[0] == 1:
            return self
        return replace(self, allowed=self.allowed.index_select(0, sentences), added=None, filled=None)

    def near(self, queries: Tensor, keys: Tensor) -> Mask:
        """The same with its window as a table, by where queries (B or 1, T) and keys (B or 1, S) stand.

        For keys that are not in the order of their positions: those of a cache, which several beams share.
        """
        if self.window is None:
            return self
        distance = queries[:, :, None] - keys[:, None, :]  # (B, T, S)
        return replace(self, window=None) & Mask(allowed=(distance.abs() < self.window)[:, None])  # (B, 1, T, S)

    @property
    def real(self) -> Tensor | None:
        """Which tokens are real, (B or 1, S): those that anybody may attend to; None: all of them."""
        if self.allowed is None:
            return None
        return self.allowed[(None,) * (4 - self.allowed.dim())].any(dim=(1, 2))

    @property
    def only_causal(self) -> bool:
        """Whether the word "causal" says everything, and no table is needed."""
        return self.causal and self.allowed is None and self.window is None and self.spans is None

    def table(self, queries: int, keys: int, device: torch.device | None = None) -> Tensor | None:
        """The mask as a boolean table that broadcasts to (B, H, T, S); None where everything is allowed.

        The last query stands at the last key, so that a few new queries over many cached keys see their past.
        """
        if not self.causal and self.window is None and self.spans is None:
            return self.allowed
        distance = torch.arange(keys - queries, keys, device=device)[:, None] - torch.arange(keys, device=device)
        near = torch.ones_like(distance, dtype=torch.bool)  # (T, S)
        if self.causal:
            near &= distance >= 0
        if self.window is not None:
            near &= distance.abs() < self.window
        if self.spans is not None:
            near &= self.spans.table(queries, keys)
        return near if self.allowed is None else near & self.allowed


def padding(keep: Tensor) -> Mask:
    """Attend to real tokens only: keep (B, S) is True where a token is real."""
    if keep.dim() != 2 or keep.dtype != torch.bool:
        raise InputError(f"a padding mask is boolean of shape (batch, length), not {keep.dtype} {tuple(keep.shape)}")
    return Mask(allowed=keep[:, None, None, :])  # (B, 1, 1, S)


def causal() -> Mask:
    """Attend to yourself and the past, never to the future: the notes' look-ahead mask."""
    return Mask(causal=True)


def window(size: int) -> Mask:
    """Attend to tokens less than `size` positions away (yourself is 0 away)."""
    if size < 1:
        raise ConfigurationError(f"a window must be at least 1 token wide, not {size}")
    return Mask(window=size)


def packed(queries: Packed, keys: Packed) -> Mask:
    """Attend to the sentence of your own number only, where queries and keys are sentences packed into rows."""
    return Mask(spans=Spans(queries, keys))


def documents(numbers: Tensor) -> Mask:
    """Attend within your own document only: numbers (B, T) says which document each packed token is from.

    A negative number marks padding: it attends to nothing and nothing attends to it.
    """
    if numbers.dim() != 2:
        raise InputError(f"document numbers have the shape (batch, length), not {tuple(numbers.shape)}")
    same = numbers[:, :, None] == numbers[:, None, :]  # (B, T, S)
    return Mask(allowed=(same & (numbers >= 0)[:, :, None])[:, None])  # (B, 1, T, S)


def pad(sentences: Sequence[Sequence[int]], value: int = 0) -> tuple[Tensor, Tensor]:
    """Sentences of different lengths as one table of tokens (B, S), and which of them are real (B, S).

    Padding comes last, as models want it: a token stands at the position of its column, so tokens behind padding
    would read as if they stood later.
    """
    lengths = [len(sentence) for sentence in sentences]
    tokens = torch.full((len(lengths), max(lengths, default=0)), value)
    for row, sentence in zip(tokens, sentences, strict=True):
        row[: len(sentence)] = torch.tensor(sentence, dtype=torch.long)
    keep = torch.arange(tokens.shape[1]) < torch.tensor(lengths, dtype=torch.long)[:, None]
    return tokens, keep
