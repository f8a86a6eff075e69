"""Tasks: how examples become batches, and what a model loses on them."""

from glassformer.tasks.classification import TextBatch, TextCollator, classification_loss, segments_of
from glassformer.tasks.losses import class_loss, sequence_loss
from glassformer.tasks.protocol import Batch, Learner, Loss
from glassformer.tasks.translation import PairBatch, PairCollator, translation_loss

__all__ = [
    "Batch",
    "Learner",
    "Loss",
    "PairBatch",
    "PairCollator",
    "TextBatch",
    "TextCollator",
    "class_loss",
    "classification_loss",
    "segments_of",
    "sequence_loss",
    "translation_loss",
]
