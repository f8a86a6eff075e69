"""Runs: train one, load one, use one."""

from glassformer.run.run import Evaluation, Run, Translation
from glassformer.run.training import Listener, Silence, cache_folder, train

__all__ = ["Evaluation", "Listener", "Run", "Silence", "Translation", "cache_folder", "train"]
