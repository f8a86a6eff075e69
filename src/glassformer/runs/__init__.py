"""Runs: train one, load one, use one."""

from glassformer.runs.building import prepare_corpus
from glassformer.runs.ensembles import ensemble
from glassformer.runs.loading import examples_in, export_run, import_run, load
from glassformer.runs.training import Listener, train

__all__ = ["Listener", "ensemble", "examples_in", "export_run", "import_run", "load", "prepare_corpus", "train"]
