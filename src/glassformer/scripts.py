"""Scripts of pages: built from web/ when the package is built (hatch_build.py), and part of it."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

BUILT = Path(__file__).parent / "looking" / "built"
NO_SCRIPTS = "its scripts were not built: install Glassformer where npm can be reached, or run make setup in its folder"


@lru_cache
def script(name: str, ending: str = "js") -> str | None:
    """A built script, "page", "widget" or "studio", or its style, ending "css"; None, if it was not built."""
    file = BUILT / f"{name}.{ending}"
    return file.read_text(encoding="utf-8") if file.is_file() else None
