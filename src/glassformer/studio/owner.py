"""The owner: one thread that has all models and does all work, one thing after the other.

Who asks waits without holding anything up. A newer question of the same tab about the same view takes the place of an
older one that still waits; a question whose browser has gone is dropped.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from glassformer.studio.refusals import Refused

MOST = 64  # questions that wait
LOOK = 0.25  # seconds between two looks whether a browser has gone
REPLACED = "a newer question has taken the place of this one"
BUSY = "the Studio has too much to do at the moment: try again"


@dataclass(eq=False)
class Job:
    """A piece of work that waits, and who waits for it."""

    work: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    answer: asyncio.Future[Any]

    def tell(self, result: Any = None, error: BaseException | None = None) -> None:
        """Tell who waits, if anybody still does."""

        def settle() -> None:
            if self.answer.done():
                return
            if error is None:
                self.answer.set_result(result)
            else:
                self.answer.set_exception(error)

        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(settle)


class Owner:
    """The thread that works, and the line of work that waits for it. What it does before all else is `begin`."""

    def __init__(self, begin: Callable[[], Any] | None = None) -> None:
        self._begin = begin
        self._waiting: dict[Hashable, Job] = {}  # in the order in which they are done
        self._changed = threading.Condition()
        self._ended = False
        self._thread = threading.Thread(target=self._go, name="glassformer owner", daemon=True)
        self._thread.start()

    async def do(
        self, key: Hashable, work: Callable[[], Any], gone: Callable[[], Awaitable[bool]] | None = None
    ) -> Any:
        """The result of some work. A waiting job of the same key is replaced; `gone`: nobody waits any more."""
        loop = asyncio.get_running_loop()
        job = Job(work, loop, loop.create_future())
        with self._changed:
            if (older := self._waiting.get(key)) is not None:
                older.tell(error=Refused(409, REPLACED))
            elif len(self._waiting) >= MOST:
                raise Refused(503, BUSY)
            self._waiting[key] = job
            self._changed.notify()
        try:
            while not job.answer.done():
                await asyncio.wait([job.answer], timeout=LOOK)
                if not job.answer.done() and gone is not None and await gone():
                    raise asyncio.CancelledError
            return job.answer.result()
        finally:
            if not job.answer.cancel():
                job.answer.exception()  # which nobody may have waited for: its browser went as the answer came
            with self._changed:
                if self._waiting.get(key) is job:
                    del self._waiting[key]

    def end(self) -> None:
        """Do nothing more."""
        with self._changed:
            self._ended = True
            self._changed.notify()

    def _go(self) -> None:
        if self._begin is not None:
            with suppress(Exception):  # who asks for the same will be told
                self._begin()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._ended)
                if self._ended:
                    return
                job = self._waiting.pop(next(iter(self._waiting)))
            try:
                job.tell(job.work())
            except BaseException as error:
                job.tell(error=error)
