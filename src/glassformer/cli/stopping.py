"""Being stopped: Ctrl-C or a polite kill ends a command at once and in silence, with 130 or 143.

Training listens for itself, and saves its state first.
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
    """While this context is open, SIGINT and SIGTERM leave by an exception, so that everything is tidied up."""
    if threading.current_thread() is not threading.main_thread():  # Python tells no other
        yield
        return
    usual = {number: signal.signal(number, _leave) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, before in usual.items():
            signal.signal(number, before)


def _leave(number: int, frame: FrameType | None) -> None:
    if _importing(frame):  # not every library survives an exception there, and nothing is to be tidied up yet
        os._exit(128 + number)
    warnings.simplefilter("ignore", ResourceWarning)  # a file that was just being opened has nobody yet to close it
    sys.exit(128 + number)


def _importing(frame: FrameType | None) -> bool:
    """Whether a library is being loaded."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False
