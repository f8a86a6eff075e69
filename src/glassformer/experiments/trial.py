"""Trials: one run of an experiment; it trains with the library's own loop, on batches that are drawn as needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn

from glassformer.experiments.batches import Rng
from glassformer.experiments.finding import Progress
from glassformer.recipe import Train
from glassformer.tasks.protocol import Batch, Loss
from glassformer.training import Trainer
from glassformer.training.protocols import Batches

Draw = Callable[..., Any]  # a batch, drawn with a generator
Item = TypeVar("Item")
Model = TypeVar("Model")


@dataclass(frozen=True)
class Trial:
    """The seed of an experiment, its progress, and what most experiments do with both."""

    seed: int
    progress: Progress

    def each(self, name: str, items: Sequence[Item]) -> Iterator[Item]:
        """The items, one after the other; progress counts those that are done."""
        for done, item in enumerate(items, start=1):
            yield item
            self.progress(name, done, len(items))

    def begin(self, make: Callable[..., Model], *sizes: Any) -> Model:
        """A new model, with the same random numbers whichever models were made before."""
        torch.manual_seed(self.seed)
        return make(*sizes)

    def new(self, draw: Draw, **sizes: Any) -> Any:
        """A batch that training does not draw."""
        return draw(np.random.default_rng([self.seed, 1, 2**32]), **sizes)

    def learn(
        self,
        name: str,
        model: nn.Module,
        draw: Draw,
        loss: Loss,
        steps: int,
        rate: float,
        every: int = 10,
        clip: float = 1.0,
    ) -> list[tuple[int, float]]:
        """Train a model; its mean loss over each `every` steps, with the step at which it was measured.

        AdamW with a short warm-up and a linear decay of the rate; no dropout, no smoothing, on the CPU. A gradient
        longer than `clip` is shortened to it; 0: none is.
        """
        options = Train(
            steps=steps,
            lr=rate,
            schedule="linear",
            warmup=max(1, steps // 10),
            weight_decay=0.0,
            clip=clip,
            smoothing=0.0,
            log_every=every,
            save_every=steps,
            seed=self.seed,
            device="cpu",
        )
        losses: list[tuple[int, float]] = []
        with TemporaryDirectory() as folder:
            Trainer(
                model,
                Drawn(draw, self.seed),
                options,
                Path(folder),
                loss,
                log=lambda record: losses.append((record["step"], record["loss"])),
                tick=lambda record: self.progress(name, record["step"], steps),
            ).run()
        return losses


class Drawn(Batches):
    """Batches without end, each drawn with its own generator: number 7 is the same whoever asks for it."""

    epoch = tokens = position = 0

    def __init__(self, draw: Callable[[Rng], Batch], seed: int) -> None:
        self.draw, self.seed = draw, seed

    def for_rank(self, rank: int, ranks: int) -> Iterator[Batch]:
        while True:
            self.position += ranks
            batch = self.draw(np.random.default_rng([self.seed, self.position - ranks + rank]))
            self.tokens += ranks * batch.tokens
            yield batch

    def state_dict(self) -> dict[str, int]:
        return {"position": self.position, "tokens": self.tokens}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.position, self.tokens = state["position"], state["tokens"]
