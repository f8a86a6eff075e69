"""What the tests of training share: tiny models, and batches of a copy task that know their place."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice, repeat
from typing import Any

import torch
from torch import Tensor

from glassformer.models import EncoderDecoder, transformer
from glassformer.parts import adapt, pad
from glassformer.recipe import Train
from glassformer.training.tuning import Mode, choose

PAD, START, END, FIRST, VOCABULARY = 0, 1, 2, 3, 12


@dataclass(frozen=True)
class FakeBatch:
    source: Tensor
    source_mask: Tensor
    target_in: Tensor
    target_out: Tensor
    target_mask: Tensor
    source_tokens: int
    targets: int

    @property
    def inputs(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.source, self.target_in, self.source_mask

    @property
    def tokens(self) -> int:
        return self.source_tokens + self.targets

    @property
    def padded_tokens(self) -> int:
        return self.source.numel() + self.target_out.numel()

    def fitted(self, grid: object) -> FakeBatch:
        return self

    def pin(self) -> FakeBatch:
        return self

    def to(self, device: torch.device) -> FakeBatch:
        return self


def batch(sentences: list[list[int]]) -> FakeBatch:
    """Sentences to be copied."""
    source, source_mask = pad(sentences, PAD)
    target_in, _ = pad([[START, *sentence] for sentence in sentences], PAD)
    target_out, target_mask = pad([[*sentence, END] for sentence in sentences], PAD)
    real = int(source_mask.sum()), int(target_mask.sum())
    return FakeBatch(source, source_mask, target_in, target_out, target_mask, *real)


class FakeBatches:
    """Epochs of the same batches, each in an order of its own."""

    def __init__(self, seed: int = 0, count: int = 7, size: int = 4, length: int = 5) -> None:
        draw = random.Random(seed)
        self.epoch, self.position, self._count = 0, 0, count
        self._all = [
            [[draw.randrange(FIRST, VOCABULARY) for _ in range(draw.randint(1, length))] for _ in range(size)]
            for _ in range(count)
        ]

    @property
    def tokens(self) -> int:
        return self.epoch * self._count + self.position

    def __iter__(self) -> Iterator[FakeBatch]:
        order = random.Random(self.epoch).sample(range(self._count), self._count)
        while self.position < self._count:
            self.position += 1
            yield batch(self._all[order[self.position - 1]])
        self.epoch, self.position = self.epoch + 1, 0

    def for_rank(self, rank: int, ranks: int) -> Iterator[FakeBatch]:
        every = chain.from_iterable(repeat(self)) if self._count else iter(())
        while group := list(islice(every, ranks)):
            yield group[rank]

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "position": self.position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.epoch, self.position = state["epoch"], state["position"]


def model(dropout: float = 0.1, seed: int = 0, **changes: Any) -> EncoderDecoder:
    """A model small enough for a thousand steps, always the same."""
    torch.manual_seed(seed)
    return transformer(VOCABULARY, width=16, heads=2, layers=1, hidden=32, dropout=dropout, **changes)


def tuned(made: EncoderDecoder, mode: Mode) -> EncoderDecoder:
    """The model, of which only so much learns."""
    adapted = adapt(made, rank=2, targets=["query", "value", "head"]) if mode == "lora" else made
    choose(adapted, mode)
    return adapted


def options(**changes: Any) -> Train:
    """Options for short runs."""
    few: dict[str, Any] = {"steps": 8, "lr": 1e-2, "warmup": 4, "save_every": 4, "log_every": 2, "device": "cpu"}
    return Train(**few | changes)
