"""The speed of a training on this machine, by a few of its steps."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from glassformer.data import Batches, Corpus
from glassformer.recipe import Recipe
from glassformer.runs.building import build
from glassformer.training import Trainer
from glassformer.training.devices import resolve
from glassformer.training.distribution import Distribution
from glassformer.training.shaping import shape_for

STEPS, LONGEST = 8, 4.0  # at most; and seconds after which no further step is taken
STARTING = 2  # steps that are slower than the others


@dataclass(frozen=True)
class Speed:
    """Tokens that are trained on in a second, and in a step for each token of `train.batch_tokens`; without padding."""

    tokens_per_second: float
    tokens_per_batch_token: float


class _Enough(Exception):  # noqa: N818  # it is not an error
    """It has been measured for long enough."""


def measured_speed(recipe: Recipe, corpus: Corpus) -> Speed:
    """The speed of this machine, by a few steps of a training."""
    torch.manual_seed(recipe.train.seed)
    model, place = build(recipe, corpus.assets), Distribution(resolve(recipe.train.device))
    collator = recipe.task.collator(recipe, corpus, model)
    plain: dict[str, Any] = {"steps": STEPS, "minutes": None, "tokens": None, "average": 0, "save_every": STEPS}
    options = recipe.train.model_copy(update=plain)
    shape = shape_for(options, place, model, collator.pairs, recipe.task.packs)
    batches = Batches(collator.pairs, options.batch_tokens, collator, options.seed, shape=shape)
    measured: list[tuple[float, int]] = []

    def tick(record: dict[str, Any]) -> None:
        if place.device.type == "cuda":
            torch.cuda.synchronize(place.device)
        measured.append((time.monotonic(), trainer.batches.tokens))
        if record["step"] > STARTING and measured[-1][0] - measured[0][0] > LONGEST:
            raise _Enough

    with TemporaryDirectory() as folder, suppress(_Enough):
        told: dict[str, Any] = {"distribution": place, "tick": tick, "shape": shape}
        trainer = Trainer(model, batches, options, Path(folder), recipe.task.loss, **told)
        trainer.run()
    (started, before), (ended, after) = measured[min(STARTING, len(measured)) - 1], measured[-1]
    each = measured[-1][1] / len(measured) / recipe.train.batch_tokens
    return Speed((after - before) / max(ended - started, 1e-9), each)
