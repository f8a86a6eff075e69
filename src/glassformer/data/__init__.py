"""Data: from a source of examples to batches of them."""

from glassformer.data.batches import Batches
from glassformer.data.cleaning import normalise
from glassformer.data.files import BETWEEN
from glassformer.data.preparing import Prepared, prepare
from glassformer.data.reading import Progress
from glassformer.data.report import Pair, Report
from glassformer.data.sources import own_splits, read_pairs
from glassformer.data.store import TokenPairs

__all__ = [
    "BETWEEN",
    "Batches",
    "Pair",
    "Prepared",
    "Progress",
    "Report",
    "TokenPairs",
    "normalise",
    "own_splits",
    "prepare",
    "read_pairs",
]
