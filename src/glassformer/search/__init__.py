"""Search: an index of texts by their vectors, and the texts nearest to a question."""

from glassformer.search.index import Hit, Index, make_index, read_index, write_index
from glassformer.search.texts import Passage, passages

__all__ = ["Hit", "Index", "Passage", "make_index", "passages", "read_index", "write_index"]
