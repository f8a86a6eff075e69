"""Make the pictures of pages in the documents: `.venv/bin/python tools/screenshots.py`, with Chromium."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

import uvicorn
from playwright.sync_api import Browser, Page, sync_playwright

import glassformer as gf
from glassformer.studio.guards import Endpoint
from glassformer.studio.run_pool import RunPool
from glassformer.studio.server import create_app
from glassformer.studio.starting import listen

PICTURES = Path(__file__).parent.parent / "docs" / "looking" / "pictures"
SHIPPED = Path(gf.__file__).parent / "recipe" / "shipped"
TEXT = "The bank raised its interest rates."


def main() -> int:
    """Look at a sentence, open each page, and keep what is seen."""
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.stderr.write("there is no chromium on this machine: apt-get install chromium\n")
        return 1
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        interactive(browser)
        with serving() as address:
            studio(browser, address)
            inside(browser, address)
        with tempfile.TemporaryDirectory() as folder:
            training(browser, Path(folder) / "reverse")
        browser.close()
    return 0


def interactive(browser: Browser) -> None:
    """A trace as a page."""
    with tempfile.TemporaryDirectory() as folder:
        file = gf.load("en-de").look(TEXT, keep=["weights", "logits"]).save_page(Path(folder) / "look.html")
        page = opened(browser, file.as_uri(), 1160, 640)
        page.locator(".rows button", has_text="Zinssätze").wait_for()
        page.screenshot(path=PICTURES / "interactive.png", full_page=True)


def studio(browser: Browser, address: str) -> None:
    """The first screens of the Studio."""
    page = opened(browser, address, 1280, 800)
    page.locator(".rows button", has_text="Zinssätze").wait_for()
    page.locator("main[aria-busy=false]").wait_for(timeout=120_000)  # the model is there
    page.screenshot(path=PICTURES / "studio-read.png")
    page.get_by_role("button", name="Decoding").click()
    page.locator("[data-tree]").wait_for(timeout=120_000)
    page.get_by_role("group", name="tokens of the output").locator("button").nth(6).click()
    page.locator("main[aria-busy=false]").wait_for(timeout=120_000)
    page.mouse.move(0, 0)
    page.screenshot(path=PICTURES / "studio-decode.png", full_page=True)


def inside(browser: Browser, address: str) -> None:
    """The views that look into the model."""
    cell = {"point": "decoder.2.cross.scores", "token": 1, "at": 1, "head": 3}
    shown: dict[str, tuple[str, dict[str, object]]] = {
        "inside": (".working table", {"part": "decoder.2.cross", "cell": cell, "heads": {"decoder.2.cross": 3}}),
        "layers": (".word", {}),
        "positions": (".slider", {"other": "We sat on the bank of the river."}),
    }
    for view, (until, options) in shown.items():
        state = urlencode({"view": view, "options": json.dumps({view: options})})
        page = opened(browser, f"{address}#{state}", 1280, 800)
        page.locator(f'[data-view="{view}"] {until}').first.wait_for(timeout=120_000)
        page.wait_for_load_state("networkidle")
        page.wait_for_timeout(500)  # points of a map move for a moment
        page.screenshot(path=PICTURES / f"studio-{view}.png", full_page=True)


def training(browser: Browser, folder: Path) -> None:
    """How a small model learned to reverse words, and a step of the tour."""
    recipe = tomllib.loads((SHIPPED / "reverse.toml").read_text("utf-8"))
    recipe["train"] |= {"steps": 400, "validate_every": 50, "log_every": 10}
    gf.train({**recipe, "look": {"texts": ["a b c d e f"], "every": 50}}, folder)
    with serving(folder, "en-de") as address:
        page = opened(browser, f"{address}#view=training", 1280, 1300)
        page.get_by_label("step of the training").wait_for()
        page.locator(".rows button").first.wait_for()
        page.screenshot(path=PICTURES / "studio-training.png")
        page = opened(browser, f'{address}#run=en-de&options={{"tour":{{"step":2}}}}', 1280, 800)
        page.locator(".unfolded aside", has_text="Score of").wait_for(timeout=120_000)
        page.wait_for_timeout(2000)
        page.screenshot(path=PICTURES / "studio-tour.png")


def opened(browser: Browser, address: str, width: int, height: int) -> Page:
    """A page of a size."""
    page = browser.new_page(viewport={"width": width, "height": height}, device_scale_factor=1.5)
    page.goto(address)
    return page


@contextmanager
def serving(*runs: str | Path) -> Iterator[str]:
    """The address of a Studio with some runs; without any, with the model that ships."""
    taken = listen("127.0.0.1", 0)
    endpoint = Endpoint.at("127.0.0.1", taken.getsockname()[1])
    server = uvicorn.Server(uvicorn.Config(create_app(RunPool(runs), endpoint), log_level="warning"))
    thread = threading.Thread(target=lambda: server.run(sockets=[taken]), daemon=True)
    thread.start()
    try:
        yield endpoint.url
    finally:
        server.should_exit = True
        thread.join()


if __name__ == "__main__":
    sys.exit(main())
