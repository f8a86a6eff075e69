"""Tasks: how examples become batches, and what a model loses on them."""

from glassformer.tasks.answering import SpanBatch, SpanCollator, answering_loss, span_loss
from glassformer.tasks.classification import TextBatch, TextCollator, classification_loss, segments_of
from glassformer.tasks.corruption import CorruptCollator, Corruption, corrupted, draw_spans, spans_of
from glassformer.tasks.images import ImageBatch, ImageCollator, image_loss, normalised
from glassformer.tasks.language import WindowBatch, WindowCollator, Windows, language_loss
from glassformer.tasks.losses import class_loss, sequence_loss
from glassformer.tasks.masking import MaskCollator, MaskedBatch, Masker, masked_loss
from glassformer.tasks.protocol import Batch, Learner, Loss
from glassformer.tasks.tagging import TagBatch, TagCollator, tagging_loss
from glassformer.tasks.translation import PairBatch, PairCollator, translation_loss

__all__ = [
    "Batch",
    "CorruptCollator",
    "Corruption",
    "ImageBatch",
    "ImageCollator",
    "Learner",
    "Loss",
    "MaskCollator",
    "MaskedBatch",
    "Masker",
    "PairBatch",
    "PairCollator",
    "SpanBatch",
    "SpanCollator",
    "TagBatch",
    "TagCollator",
    "TextBatch",
    "TextCollator",
    "WindowBatch",
    "WindowCollator",
    "Windows",
    "answering_loss",
    "class_loss",
    "classification_loss",
    "corrupted",
    "draw_spans",
    "image_loss",
    "language_loss",
    "masked_loss",
    "normalised",
    "segments_of",
    "sequence_loss",
    "span_loss",
    "spans_of",
    "tagging_loss",
    "translation_loss",
]
