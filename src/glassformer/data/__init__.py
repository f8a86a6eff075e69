"""Data: from a source of examples to batches of them."""

from glassformer.data.assets import Assets
from glassformer.data.batches import Batches
from glassformer.data.cleaning import normalise
from glassformer.data.encoding import Context, Encode, Encoded
from glassformer.data.examples import BadRow, Columns, Document
from glassformer.data.preparing import Corpus, prepare
from glassformer.data.reading import Progress
from glassformer.data.report import Report
from glassformer.data.source import Source
from glassformer.data.store import Rows

__all__ = [
    "Assets",
    "BadRow",
    "Batches",
    "Columns",
    "Context",
    "Corpus",
    "Document",
    "Encode",
    "Encoded",
    "Progress",
    "Report",
    "Rows",
    "Source",
    "normalise",
    "prepare",
]
