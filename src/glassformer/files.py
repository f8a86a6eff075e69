"""Files of others: a path names a regular file or a folder, and what is read whole has a bounded size."""

from __future__ import annotations

import errno
import math
import os
import stat
from pathlib import Path

from glassformer.errors import DataError

SETTINGS = 1 << 24  # bytes in a file of settings: a recipe, or a JSON file of a run or a checkpoint


def regular(path: Path, most: float = math.inf) -> Path:
    """The path of a file to read, of at most so many bytes; else OSError, as of all files that cannot be read.

    A pipe or a device, which may have no end, is not opened.
    """
    found = path.stat()
    if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):
        raise OSError(errno.EINVAL, "It is a pipe, a socket or a device", str(path))
    if found.st_size > most:
        raise OSError(errno.EFBIG, f"It has {found.st_size:,} bytes, at most {most:,} are read", str(path))
    return path


def check_file(path: Path) -> os.stat_result:
    """What the system knows of a regular file; a pipe or a device, which may have no end, is refused unopened."""
    try:
        found = path.stat()
    except (OSError, ValueError) as error:  # ValueError: the path holds a NUL
        raise DataError(f"{path}: cannot be read: {getattr(error, 'strerror', error)}") from None
    if not stat.S_ISREG(found.st_mode):
        what = "a folder" if stat.S_ISDIR(found.st_mode) else "a pipe, a socket or a device"
        raise DataError(f"{path}: is {what}: name a file")
    return found


def check_folder(path: Path) -> Path:
    """The path, if it is one of a folder."""
    try:
        if path.is_dir():
            return path
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    raise DataError(f"{path}: is not a folder")


def read_whole(path: Path, most: int) -> bytes:
    """The bytes of a file of at most so many."""
    size = check_file(path).st_size
    if size > most:
        raise DataError(f"{path}: has {size:,} bytes: at most {most:,} are read")
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None
