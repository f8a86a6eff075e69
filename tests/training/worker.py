"""Trainings in a process of their own, to be killed, or to be one of several: `python -m training.worker […]`.

Takes a list of wishes as JSON: folder, resume, dropout, fail (the rank whose data is bad), poison
(a rank, and the first and last step in which its loss is not finite), stop (rank 0 is asked to stop when it validates),
mode (what learns), unfreeze, and the options of `Train`. Prints a line a step.
"""

import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from glassformer.errors import GlassformerError, Stopped, TrainingError
from glassformer.tasks.translation import translation_loss
from glassformer.training import Distribution, Trainer, distribution

from .helpers import FakeBatches, model, options, tuned


def train(wish: dict[str, Any], who: Distribution) -> None:
    """One training."""
    folder, resume, dropout = Path(wish.pop("folder")), wish.pop("resume", False), wish.pop("dropout", 0.1)
    fail, stop, poison = wish.pop("fail", None), wish.pop("stop", False), wish.pop("poison", (-1, 0, 0))
    made, unfreeze = tuned(model(dropout), wish.pop("mode", "full")), wish.pop("unfreeze", 0)
    chosen, batches = options(**wish), FakeBatches()
    if fail == who.rank:
        batches._all = [[[99]]] * 7  # a token that is not there

    def tick(record: dict[str, Any]) -> None:
        print(record["step"], flush=True)  # noqa: T201

    def validate(_: Any) -> dict[str, float]:
        if stop:
            os.kill(os.getpid(), signal.SIGTERM)
        return {"loss": 1.0}

    def loss(*arguments: Any) -> Any:
        bad = who.rank == poison[0] and poison[1] <= trainer.step + 1 <= poison[2]
        return translation_loss(*arguments) * (float("nan") if bad else 1.0)

    others: dict[str, Any] = {
        "distribution": replace(who, strategy=chosen.strategy),
        "tick": tick,
        "unfreeze": unfreeze,
    }
    trainer = Trainer(made, batches, chosen, folder, loss if poison[0] >= 0 else translation_loss, validate, **others)
    trainer.run(resume)


if __name__ == "__main__":
    torch.set_num_threads(1)
    try:
        with distribution("cpu") as everyone:
            for each in json.loads(sys.argv[1]):
                try:
                    train(each, everyone)
                except (Stopped, TrainingError) as error:  # of all ranks: they go on
                    print(f"{type(error).__name__}: {error}", flush=True)  # noqa: T201
    except GlassformerError as error:
        sys.exit(f"{type(error).__name__}: {error}")
