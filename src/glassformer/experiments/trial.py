"""Trials: one run of an experiment; it trains with the library's own loop, on batches that are drawn as needed.

for each in trial.seeds(): …                                 # the same again, with other random numbers
trial.map("learning", work, jobs)                            # work(*job) for each job, over the cores
trial.tuned("learning", work, variants, rates=(1e-3, 1e-2))  # each variant at the rate that suits it, at each seed
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import nn

from glassformer.experiments.batches import Rng
from glassformer.experiments.finding import Progress, silent
from glassformer.experiments.workers import Workers, alone, sendable
from glassformer.recipe import Train
from glassformer.tasks.protocol import Batch, Loss
from glassformer.training import Trainer
from glassformer.training.protocols import Batches

SEEDS = 2**63  # how many there are
Draw = Callable[..., Any]  # a batch, drawn with a generator
Item = TypeVar("Item")
Model = TypeVar("Model")
Result = TypeVar("Result")
Variant = TypeVar("Variant", bound=Hashable)


@dataclass(frozen=True)
class Tuned(Generic[Result]):
    """What a variant gives at the learning rate that was chosen for it."""

    rate: float
    losses: dict[float, float]  # on validation, of each rate that was tried
    results: list[Result]  # one for each seed


def told_rates(rates: Sequence[float]) -> str:
    """How learning rates were chosen, for the method of an experiment."""
    *first, last = (f"{rate:g}" for rate in rates)
    return f"at the learning rate out of {', '.join(first)} and {last} that has the lowest loss on validation"


def _finite(loss: float) -> float:
    """A loss; infinite where training ended in numbers that are none."""
    return loss if math.isfinite(loss) else math.inf


@dataclass(frozen=True)
class Trial:
    """The seed of an experiment, its progress, and what most experiments do with both."""

    seed: int
    progress: Progress = silent
    workers: Workers | None = None
    repeats: int = 3  # how often everything is done, each time with another seed

    def seeds(self) -> list[Trial]:
        """Trials with seeds of their own, which no trial with another seed has; they can be sent to workers."""
        return [Trial((self.repeats * self.seed + number) % SEEDS) for number in range(self.repeats)]

    def map(self, name: str, work: Callable[..., Result], jobs: Sequence[tuple[Any, ...]]) -> list[Result]:
        """What `work(*job)` returns for each job, over the cores if there are workers; `work` is a top-level function.

        Each job begins with this trial's random numbers and has one thread: results are the same for any number of
        workers.
        """
        if self.workers is not None:
            return self.workers.map(work, jobs, self.seed, lambda done: self.progress(name, done, len(jobs)))
        return [sendable(alone(*sendable((work, job)), self.seed)) for job in self.each(name, jobs)]

    def tuned(
        self,
        name: str,
        work: Callable[[Trial, Variant, float], tuple[float, Result]],
        variants: Sequence[Variant],
        rates: Sequence[float],
        on: int = 1,
    ) -> dict[Variant, Tuned[Result]]:
        """Each variant at all seeds, with the rate that has the lowest validation loss, the mean of `on` seeds.

        `work(trial, variant, rate)` trains and returns a validation loss (see `held_out`; infinite if training failed)
        and what was measured.
        """
        trials = self.seeds()
        tried = [(each, variant, rate) for variant in variants for rate in rates for each in trials[:on]]
        known = dict(zip(tried, self.map(f"{name}: choosing rates", work, tried), strict=True))
        losses = {
            variant: {rate: _finite(fmean(known[each, variant, rate][0] for each in trials[:on])) for rate in rates}
            for variant in variants
        }
        chosen = {variant: min(rates, key=losses[variant].__getitem__) for variant in variants}
        others = [(each, variant, chosen[variant]) for variant in variants for each in trials[on:]]
        known |= zip(others, self.map(name, work, others), strict=True)
        return {
            variant: Tuned(rate, losses[variant], [known[each, variant, rate][1] for each in trials])
            for variant, rate in chosen.items()
        }

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
        """A batch that training does not draw, for what is measured in the end."""
        return draw(np.random.default_rng([self.seed, 1, 2**32]), **sizes)

    def held_out(self, draw: Draw, **sizes: Any) -> Any:
        """Another batch that training does not draw, for choices between models: validation."""
        return draw(np.random.default_rng([self.seed, 2, 2**32]), **sizes)

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
