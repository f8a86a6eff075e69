"""Batches that experiments draw: random texts, all of one length.

B batch, T length, S source length
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from glassformer.tasks.gathering import TextBatch, TokenBatch
from glassformer.tasks.translation import PairBatch

Rng = np.random.Generator
MODULUS, COUNTED = 11, 10  # of sequences that count: how many numbers there are, and how many are read


def windows(rows: Any, asked: Any = None) -> TokenBatch:
    """Rows of tokens (B, T + 1) as a batch: after each token the next is asked for, where `asked` (B, T) says so."""
    rows = torch.as_tensor(rows)
    text, labels = rows[:, :-1].contiguous(), rows[:, 1:].contiguous()  # (B, T)
    asked = torch.ones_like(labels, dtype=torch.bool) if asked is None else torch.as_tensor(asked)
    return TokenBatch(text, labels, asked, None, text.numel(), int(asked.sum()))


def texts(rows: Any, labels: Any) -> TextBatch:
    """Texts (B, T) and their labels (B)."""
    rows = torch.as_tensor(rows)
    return TextBatch(rows, torch.ones_like(rows, dtype=torch.bool), None, torch.as_tensor(labels), rows.numel())


def pairs(source: Any, target: Any, start: int, end: int) -> PairBatch:
    """Sources (B, S) and targets (B, T)."""
    source, target = torch.as_tensor(source), torch.as_tensor(target)
    column = torch.ones_like(target[:, :1])
    target_in = torch.cat((start * column, target), dim=1)  # (B, T + 1)
    target_out = torch.cat((target, end * column), dim=1)  # (B, T + 1)
    return PairBatch(
        source=source,
        source_mask=torch.ones_like(source, dtype=torch.bool),
        target_in=target_in,
        target_out=target_out,
        target_mask=torch.ones_like(target_out, dtype=torch.bool),
        rows=torch.arange(len(source)),
        source_tokens=source.numel(),
        targets=target_out.numel(),
    )


def counting(rng: Rng, count: int = 32) -> TokenBatch:
    """Sequences s, s + d, s + 2d, … modulo 11; what comes after the second number follows from the first two."""
    first, step = rng.integers(MODULUS, size=(count, 1)), rng.integers(1, MODULUS, size=(count, 1))
    rows = (first + step * np.arange(COUNTED + 1)) % MODULUS  # (B, T + 1)
    return windows(rows, np.arange(COUNTED) > np.zeros((count, 1)))


def repeating(rng: Rng, vocabulary: int, length: int, back: int = 1, count: int = 32) -> TokenBatch:
    """Random texts (B, T); at each place that has one, the token `back` places before is asked for."""
    text = torch.from_numpy(rng.integers(vocabulary, size=(count, length)))
    asked = (torch.arange(length) >= back).expand_as(text)
    return TokenBatch(text, text.roll(back, dims=1), asked, None, text.numel(), int(asked.sum()))
