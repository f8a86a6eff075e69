"""Atomic writing: a reader finds the old file or the new one, never a part of it."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from glassformer.errors import InputError, RunError

RUN_FILES = ("recipe.toml", "config.json")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path; without an error, that file is flushed and renamed to `path`, else it is removed."""
    if path.exists() and not path.is_file():  # a rename would put a file in the place of a device
        raise FileExistsError(errno.EEXIST, "it is no regular file", str(path))
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


def is_trained(folder: Path) -> bool:
    """Whether a folder holds a run that was trained here, finished or not."""
    return all((folder / name).is_file() for name in RUN_FILES)


def make_folder(folder: Path) -> None:
    """Make a folder and check that it can be written to: called before any work is done that could be lost."""
    check_folder(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InputError(f"{folder} cannot be written to: {error.strerror or error}") from None


def check_folder(folder: Path) -> None:
    """Refuse a path where a folder cannot be: it, or what it should lie in, is something else."""
    found = next(each for each in (folder, *folder.parents) if each.exists())
    if not found.is_dir():
        raise RunError(f"{found} is a file: choose a folder")


def check_free(folder: Path, force: bool) -> None:
    """Refuse to write into a folder that holds something, unless forced; a trained run is never written over."""
    check_folder(folder)
    if is_trained(folder):
        raise RunError(f"{folder} holds a run that was trained: choose another folder")
    if not force and folder.exists() and any(folder.iterdir()):
        raise RunError(f"{folder} is not empty: choose another folder, or write over what it holds with --force")
