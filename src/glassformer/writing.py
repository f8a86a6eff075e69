"""Atomic writing: a reader finds the old file or the new one, never a part of it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from glassformer.errors import RunError

RUN_FILES = ("recipe.toml", "config.json")  # a folder that holds both is a run that was trained


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path; without an error, that file is flushed and renamed to `path`, else it is removed."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield new
        new.chmod(0o644)
        flush(new)
        new.replace(path)
    finally:
        with suppress(OSError):
            new.unlink()


def flush(path: Path) -> None:
    """Wait until a file or a folder is on the disk."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def write_text(path: Path, text: str) -> None:
    """Write a file at once: under a temporary name, flushed, then renamed."""
    with replacing(path) as new:
        new.write_text(text, encoding="utf-8")


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Write an object as a JSON file, at once."""
    write_text(path, json.dumps(values, indent=2, ensure_ascii=False) + "\n")


def check_free(folder: Path, force: bool) -> None:
    """Refuse to write into a folder that holds something, unless forced; a trained run is never written over."""
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{folder} is a file: choose a folder")
    if all((folder / name).is_file() for name in RUN_FILES):
        raise RunError(f"{folder} holds a run that was trained: choose another folder")
    if not force and folder.exists() and any(folder.iterdir()):
        raise RunError(f"{folder} is not empty: choose another folder, or write over what it holds with --force")
