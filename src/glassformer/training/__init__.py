"""Training: the loop, its loss, optimisers, schedules, checkpoints and distribution."""

from glassformer.training.checkpoints import Checkpoint, Checkpoints, load_weights, weights
from glassformer.training.devices import resolve
from glassformer.training.distribution import Distribution, distribution
from glassformer.training.loop import Trainer
from glassformer.training.protocols import Outcome

__all__ = [
    "Checkpoint",
    "Checkpoints",
    "Distribution",
    "Outcome",
    "Trainer",
    "distribution",
    "load_weights",
    "resolve",
    "weights",
]
