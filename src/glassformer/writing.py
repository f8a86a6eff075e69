"""Writing files at once: a reader finds the old one or the new one, never half of either."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary name to write to; if all went well, the file is flushed and takes its place, else it is removed."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield new
        new.chmod(0o644)
        with new.open("rb") as file:
            os.fsync(file.fileno())
        new.replace(path)
    finally:
        with suppress(OSError):
            new.unlink()
