"""Looking inside: record what a model does, and read it back."""

from glassformer.looking.record import Trace as Trace
from glassformer.looking.record import record as record
