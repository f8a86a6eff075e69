"""Comparing: several recipes or runs side by side, on the same data."""

from glassformer.compare.comparing import Comparison, Entry, compare, entries_of
from glassformer.compare.report import write_report

__all__ = ["Comparison", "Entry", "compare", "entries_of", "write_report"]
