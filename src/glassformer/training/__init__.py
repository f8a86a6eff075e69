"""Training: the loop, its loss, optimisers, schedules, checkpoints and distribution."""

from glassformer.training.checkpoints import Checkpoints as Checkpoints
from glassformer.training.devices import resolve as resolve
from glassformer.training.distribution import Distribution as Distribution
from glassformer.training.distribution import distribution as distribution
from glassformer.training.loop import Trainer as Trainer
