"""Texts to begin with: for a model that ships, ours; for a run, examples that it has not seen in its training."""

from __future__ import annotations

from typing import Any

from glassformer.errors import GlassformerError
from glassformer.studio.run_pool import ASSETS

BANK = "The bank raised its interest rates."
SHIPPED = [
    BANK,
    "The children are playing in the garden.",
    "She gave him the book that he had asked for.",
    "Where is the old station?",
]


def examples_of(run: Any) -> list[str]:
    """What a run can be given, the one to begin with first; nothing, if no examples were kept."""
    if run.path is not None and run.path.parent == ASSETS:
        return SHIPPED
    try:
        found = run.suggestions()
    except GlassformerError:
        return []
    middle = found[len(found) // 2 : len(found) // 2 + 1]  # neither a single word nor the longest
    return [*middle, *(text for text in found if text not in middle)]
