"""Signals: Ctrl-C and a polite kill are wishes to stop, granted when the step is done."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any


class Listener:
    """While this context is open, SIGINT and SIGTERM are noted in `heard`; a second one has its usual effect."""

    def __init__(self) -> None:
        self.heard = 0
        self._usual: dict[int, Any] = {}

    def __enter__(self) -> Listener:
        if threading.current_thread() is threading.main_thread():  # Python tells no other
            self._usual = {number: signal.signal(number, self._hear) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *error: object) -> None:
        for number, usual in self._usual.items():
            signal.signal(number, usual)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self.heard = number
        self.__exit__()
