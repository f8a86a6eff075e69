"""Stopping: Ctrl-C (SIGINT) or SIGTERM ends a command within two seconds and leaves nothing half-made.

`stoppable` ends a command at once and without a message, with exit code 130 or 143. Python hears a signal only between
two steps of its own; where a library works on for long (the training of a tokenizer, say), a thread ends the process.
`SignalListener` lets training end by itself, with its state saved.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn

DEAF, SLOW = 1.0, 10.0  # seconds until a signal that Python has not heard, or not obeyed, ends the process
SIGNALS = (signal.SIGINT, signal.SIGTERM)
_open: list[Callable[[], None]] = []  # what is to be cleaned up, in the order in which it was begun
_cleaning = threading.RLock()
_heard = threading.Event()
_listeners: list[SignalListener] = []  # the one that is open, if any
_taken: list[int] = []  # the signals that listeners have heard
_undivided, _waiting = 0, list[int]()  # how many contexts let signals wait, and the signals that wait
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))  # the signals of a child are not ours


@contextmanager
def at_the_end(clean: Callable[[], None]) -> Iterator[None]:
    """Call a function when this context ends, or when the process is ended within it by `stoppable`."""
    _open.append(clean)
    try:
        yield
    finally:
        with _cleaning:
            _open.remove(clean)
            clean()


@contextmanager
def undivided() -> Iterator[None]:
    """While this context is open, a signal waits: for a few quick operations that belong together."""
    global _undivided  # signals are the process's, too
    _undivided += 1
    try:
        yield
    finally:
        _undivided -= 1
        if _waiting and not _undivided:
            _leave(_waiting.pop(), None)


@contextmanager
def stoppable() -> Iterator[None]:
    """While this context is open, SIGINT and SIGTERM raise SystemExit, so that everything is cleaned up."""
    if threading.current_thread() is not threading.main_thread():  # only that one can handle signals
        yield
        return
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    before = {number: signal.signal(number, _leave) for number in SIGNALS}
    woken = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(ours,), daemon=True).start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(woken)
        theirs.close()  # which ends the thread
        for number, handler in before.items():
            signal.signal(number, handler)


def _watch(wake: socket.socket) -> None:
    """End the process soon after a signal, if that is still to be done; the operating system tells of each signal."""
    taken = len(_taken)
    with wake:
        while received := wake.recv(1):
            if received[0] not in SIGNALS:
                continue
            time.sleep(DEAF)
            while (listening := _listeners[-1:]) and len(_taken) == taken and not _heard.is_set():
                listening[0].end_deaf(received[0])
                time.sleep(0.1)
            if len(_taken) > taken:
                taken += 1
                continue  # a listener ends the work
            if _heard.is_set():
                time.sleep(SLOW - DEAF)
            _end(received[0])


def _end(number: int) -> NoReturn:
    """Clean up, and end the process."""
    _cleaning.acquire()  # for good: who else wants to clean up, waits for the end
    while _open:
        with suppress(Exception):
            _open.pop()()
    os._exit(128 + number)


def _leave(number: int, frame: FrameType | None) -> None:
    if _undivided:
        _waiting.append(number)
        return
    _heard.set()
    if _importing(frame):  # some libraries do not survive an exception there
        _end(number)
    warnings.simplefilter("ignore", ResourceWarning)  # of a file that was just being opened, which nothing closes yet
    sys.exit(128 + number)


def _importing(frame: FrameType | None) -> bool:
    """Whether a library is being loaded."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


class Interrupted(BaseException):
    """A signal has come while it was allowed to interrupt the work."""


class SignalListener:
    """Stores SIGINT and SIGTERM in `received` while this context is open; a second signal has its normal effect."""

    def __init__(self) -> None:
        self.received = 0
        self._may_interrupt = False
        self._save: Callable[[int], object] | None = None
        self._ending = threading.Lock()
        self._previous_handlers: dict[int, Any] = {}

    def __enter__(self) -> SignalListener:
        if threading.current_thread() is threading.main_thread():  # Python delivers signals to no other thread
            self._previous_handlers = {number: signal.signal(number, self._receive) for number in SIGNALS}
            _listeners.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        self._restore_handlers()
        if self in _listeners:
            _listeners.remove(self)

    @contextmanager
    def interrupting(self, save: Callable[[int], object] | None = None) -> Iterator[None]:
        """While this context is open, a signal raises Interrupted; so does one that has come before.

        Where a library works on for long and Python does not hear the signal, another thread calls `save` with its
        number and ends the process with what that returns as a message.
        """
        self._may_interrupt, self._save = True, save
        try:
            if self.received:
                raise Interrupted
            yield
        finally:
            self._may_interrupt = False
            with self._ending:  # which is never released where the process is being ended
                self._save = None

    def end_deaf(self, number: int) -> None:
        """End the process after a signal that Python does not hear, if there is a way to save the work."""
        with self._ending:
            if self._save is not None and not self.received:
                try:
                    message = str(self._save(number))
                except Exception as error:  # a full disk: there is nobody else to tell
                    message = f"the state cannot be saved: {error}"
                sys.stderr.write(f"glassformer: {message}\n")
                _end(number)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.received = number
        _taken.append(number)
        self._restore_handlers()
        if self._may_interrupt:
            raise Interrupted

    def _restore_handlers(self) -> None:
        for number, handler in self._previous_handlers.items():
            signal.signal(number, handler)
        self._previous_handlers = {}
