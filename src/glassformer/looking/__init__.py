"""Looking inside: record what a model does, and read it back."""

from glassformer.looking.record import Trace, record

__all__ = ["Trace", "record"]
