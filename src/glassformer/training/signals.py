"""Signals: Ctrl-C (SIGINT) and SIGTERM stop training after the current step."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any


class Listener:
    """Stores SIGINT and SIGTERM in `received` while this context is open; a second signal has its normal effect."""

    def __init__(self) -> None:
        self.received = 0
        self._previous_handlers: dict[int, Any] = {}

    def __enter__(self) -> Listener:
        if threading.current_thread() is threading.main_thread():  # Python delivers signals to no other thread
            self._previous_handlers = {
                number: signal.signal(number, self._receive) for number in (signal.SIGINT, signal.SIGTERM)
            }
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._previous_handlers.items():
            signal.signal(number, handler)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.received = number
        self.__exit__()
