"""Items: what a run reads of what a page gives."""

from __future__ import annotations

from typing import Any

from glassformer.errors import InputError

LONGEST = 20_000  # characters of a text


def item_of(run: Any, given: str) -> Any:
    """What a run reads of what a page gives, which opens no file; only an image may be long."""
    if len(given) > LONGEST and not run.reads_images:
        raise InputError(f"the text has {len(given):,} characters: {LONGEST:,} are read at most")
    return run.from_page(given)
