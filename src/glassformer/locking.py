"""File locks, so that only one process at a time writes to a folder. A lock ends when its process ends.

Locks use `flock`; where it is not supported (Windows, some network disks), nothing is locked.
"""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

if sys.platform != "win32":
    import fcntl


def take(path: Path) -> int:
    """Create and lock a file, and return its descriptor. Closing it, or the end of the process, unlocks the file.

    A BlockingIOError means that another process holds the lock; any other OSError, that locks are not supported.
    """
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            _lock(file)
            if path.exists() and os.path.samestat(os.fstat(file), path.stat()):
                return file
        except BaseException:
            os.close(file)
            raise
        os.close(file)  # the process that held the lock has just removed the file: create it again


def _lock(file: int) -> None:
    if sys.platform == "win32":
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def held(path: Path) -> bool:
    """Whether another process holds the lock of a file; where locks are not supported, it seems that none does."""
    try:
        file = os.open(path, os.O_RDWR)
    except OSError:
        return False
    try:
        _lock(file)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(file)
    return False
