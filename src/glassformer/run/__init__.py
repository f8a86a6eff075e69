"""Runs: train one, load one, use one."""

from glassformer.run.answerer import Answer, Answerer
from glassformer.run.classifier import Classified, Classifier
from glassformer.run.kinds import load, load_as
from glassformer.run.run import Evaluation, Run, Translation
from glassformer.run.training import Listener, Silence, cache_folder, train

__all__ = [
    "Answer",
    "Answerer",
    "Classified",
    "Classifier",
    "Evaluation",
    "Listener",
    "Run",
    "Silence",
    "Translation",
    "cache_folder",
    "load",
    "load_as",
    "train",
]
