"""The owner of the models: whoever has gone leaves nothing behind."""

import asyncio
import gc
import threading
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest

from glassformer.studio.owner import REPLACED, Owner
from glassformer.studio.refusals import Refused

Result = TypeVar("Result")


def test_a_browser_that_goes_as_its_question_is_replaced_leaves_no_complaint() -> None:
    complaints: list[dict[str, Any]] = []

    async def asked() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, complaint: complaints.append(complaint))
        owner, held, free = Owner(), asyncio.Event(), threading.Event()

        async def gone() -> bool:
            newer.append(asyncio.ensure_future(owner.do("view", lambda: "newer")))
            await asyncio.sleep(0.05)  # in which the older one is told that it was replaced
            return True

        newer: list[asyncio.Future[Any]] = []

        def hold() -> None:
            loop.call_soon_threadsafe(held.set)
            free.wait(60)

        blocked = asyncio.ensure_future(owner.do("first", hold))
        await held.wait()
        with pytest.raises((asyncio.CancelledError, Refused)):
            await owner.do("view", lambda: "older", gone)
        free.set()
        await blocked
        assert await newer[0] == "newer"
        owner.end()

    _run(asked())
    gc.collect()
    assert not complaints


def _run(asked: Coroutine[Any, Any, Result]) -> Result:
    """Run something in a thread of its own: that of the tests may have the loop of a browser's driver."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, asked).result()


def test_a_newer_question_takes_the_place_of_one_that_waits() -> None:
    async def asked() -> tuple[Any, Any]:
        owner, free = Owner(), threading.Event()
        blocked = asyncio.ensure_future(owner.do("first", lambda: free.wait(60)))
        await asyncio.sleep(0.05)
        older = asyncio.ensure_future(owner.do("view", lambda: "older"))
        await asyncio.sleep(0.05)
        newest = asyncio.ensure_future(owner.do("view", lambda: "newer"))
        await asyncio.wait([older])  # it was told that it was replaced
        free.set()
        newer = await newest
        await blocked
        owner.end()
        return (await asyncio.gather(older, return_exceptions=True))[0], newer

    older, newer = _run(asked())
    assert isinstance(older, Refused)
    assert REPLACED in str(older)
    assert newer == "newer"
