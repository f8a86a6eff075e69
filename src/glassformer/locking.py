"""Locks: one process at a time where two would spoil each other's work. A lock ends with its process, however it ends.

They are flock's, on a file; where there is no such thing (Windows, some network disks), nothing is locked.
"""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

if sys.platform != "win32":
    import fcntl


def take(path: Path) -> int:
    """Make and lock a file. Closing what this returns, or the end of the process, unlocks it.

    A BlockingIOError says that somebody else has it, any other OSError that nothing can be locked here.
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
        os.close(file)  # who had it before has just removed it: make another


def _lock(file: int) -> None:
    if sys.platform == "win32":
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
