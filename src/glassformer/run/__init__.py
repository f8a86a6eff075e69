"""Runs: train one, load one, use one."""

from glassformer.run.answerer import Answer, Answerer
from glassformer.run.classifier import Classifier
from glassformer.run.denoiser import Denoised, Denoiser
from glassformer.run.filler import Filled, Filler
from glassformer.run.image_classifier import ImageClassifier
from glassformer.run.kinds import load, load_as
from glassformer.run.labelling import ClassEvaluation, Classified
from glassformer.run.language import LanguageModel, Surprise
from glassformer.run.run import Evaluation, Run
from glassformer.run.tagger import Tagged, Tagger
from glassformer.run.training import Listener, Silence, cache_folder, train
from glassformer.run.written import Translation

__all__ = [
    "Answer",
    "Answerer",
    "ClassEvaluation",
    "Classified",
    "Classifier",
    "Denoised",
    "Denoiser",
    "Evaluation",
    "Filled",
    "Filler",
    "ImageClassifier",
    "LanguageModel",
    "Listener",
    "Run",
    "Silence",
    "Surprise",
    "Tagged",
    "Tagger",
    "Translation",
    "cache_folder",
    "load",
    "load_as",
    "train",
]
