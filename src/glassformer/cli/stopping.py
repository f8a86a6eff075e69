"""Stopping: Ctrl-C or SIGTERM ends a command at once and without a message, with exit code 130 or 143.

Training handles these signals itself, and saves its state first.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stoppable() -> Iterator[None]:
    """While this context is open, SIGINT and SIGTERM raise SystemExit, so that everything is cleaned up."""
    if threading.current_thread() is not threading.main_thread():  # only that one can handle signals
        yield
        return
    before = {number: signal.signal(number, _leave) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave(number: int, frame: FrameType | None) -> None:
    if _importing(frame):  # some libraries do not survive an exception there, and there is nothing to clean up yet
        os._exit(128 + number)
    warnings.simplefilter("ignore", ResourceWarning)  # of a file that was just being opened, which nothing closes yet
    sys.exit(128 + number)


def _importing(frame: FrameType | None) -> bool:
    """Whether a library is being loaded."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False
