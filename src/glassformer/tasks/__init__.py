"""Tasks: how examples become batches, and what a model loses on them."""

from glassformer.tasks.losses import class_loss, sequence_loss
from glassformer.tasks.protocol import Batch, Learner, Loss
from glassformer.tasks.translation import PairBatch, PairCollator, translation_loss

__all__ = [
    "Batch",
    "Learner",
    "Loss",
    "PairBatch",
    "PairCollator",
    "class_loss",
    "sequence_loss",
    "translation_loss",
]
