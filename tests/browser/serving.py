"""A Studio on a free port of this machine, in a thread of the tests, and pages of it in a browser."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

import uvicorn
from playwright.sync_api import Browser, Page, expect

from glassformer.studio.guards import Endpoint
from glassformer.studio.run_pool import RunPool
from glassformer.studio.server import create_app
from glassformer.studio.starting import listen

PATIENCE = 60_000  # milliseconds: a model may have to be loaded first, on a busy machine
expect.set_options(timeout=PATIENCE)


@contextmanager
def served(runs: Sequence[str | Path]) -> Iterator[str]:
    """The address of a Studio with some runs, for as long as it is needed."""
    taken = listen("127.0.0.1", 0)
    endpoint = Endpoint.at("127.0.0.1", taken.getsockname()[1])
    server = uvicorn.Server(
        uvicorn.Config(create_app(RunPool(runs, "cpu"), endpoint), log_level="warning", access_log=False)
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [taken]}, daemon=True)
    thread.start()
    while not server.started:
        sleep(0.02)
    try:
        yield endpoint.url
    finally:
        server.should_exit = True
        thread.join(5)


@contextmanager
def visited(
    browser: Browser, url: str, width: int = 1280, height: int = 800, scheme: str = "light", refused: bool = False
) -> Iterator[Page]:
    """A page of a Studio; nothing may be complained about (but for what is `refused`), and nothing asked of others."""
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme=scheme,  # type: ignore[arg-type]
        reduced_motion="reduce",
    )
    page, complaints, requests = context.new_page(), list[str](), list[str]()
    page.set_default_timeout(PATIENCE)
    page.on("console", lambda said: complaints.append(said.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    try:
        page.goto(url)
        yield page
        assert [each for each in complaints if not (refused and "status of 400" in each)] == []
        own = url.partition("#")[0]
        assert [each for each in requests if not each.startswith((own, "data:", "blob:"))] == []
    finally:
        context.close()


def link(page: Page) -> str:
    """The address of a page as it is now: the driver hears of a new one some time after the key that has led to it."""
    found: str = page.evaluate("location.href")
    return found


def until(holds: Callable[[], bool]) -> bool:
    """Whether something comes to hold: it is tried again and again, as `expect` does."""
    end = monotonic() + PATIENCE / 1000
    while not (found := holds()) and monotonic() < end:
        sleep(0.05)
    return found


def fits(page: Page, width: int) -> bool:
    """Whether a page comes to need no more width: a chart is drawn before it is told how wide it may be."""
    return until(lambda: bool(page.evaluate("document.documentElement.scrollWidth") <= width))
