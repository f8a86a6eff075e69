"""A browser for the tests of pages: the Chromium of the machine, without a network."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.request import urlopen

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

import glassformer as gf
from glassformer.looking.trace import Trace
from glassformer.recipe import make_recipe
from glassformer.scripts import script
from glassformer.tasks.translation import Translator
from tiny import IDLE, recipe, table

from .serving import PATIENCE

LOOPBACK = "http://127.0.0.1:"
TEXT = "The bank raised its interest rates."


@dataclass
class Opened:
    """A page in a browser, and what must not happen in it."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


Open = Callable[..., Opened]
STARTS = 120  # seconds that a Studio may take to answer, and to end, on a busy machine


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    found = shutil.which("chromium")
    if found is None:
        pytest.skip("there is no chromium on this machine: apt-get install chromium")
    if script("page") is None:
        pytest.skip("the scripts of the interactive view are not built: make setup")
    with sync_playwright() as driver:
        yield driver.chromium.launch(executable_path=found, args=["--no-sandbox"])


@pytest.fixture
def opened(browser: Browser) -> Iterator[Open]:
    """Opens a file, or an empty page, and checks afterwards that nothing was complained about or asked of a network."""
    made: list[Opened] = []

    def open_file(
        file: Path | str | None, width: int = 1280, height: int = 800, scheme: str = "light", scale: float = 2
    ) -> Opened:
        context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme=scheme,  # type: ignore[arg-type]
            device_scale_factor=scale,
            offline=not isinstance(file, str),
        )
        found = Opened(context.new_page())
        found.page.set_default_timeout(PATIENCE)
        found.page.on("console", lambda said: found.complaints.append(said.text))
        found.page.on("pageerror", lambda error: found.complaints.append(str(error)))
        found.page.on("request", lambda request: found.requests.append(request.url))
        made.append(found)
        found.page.goto("about:blank" if file is None else file if isinstance(file, str) else file.as_uri())
        return found

    yield open_file
    for each in made:
        assert each.complaints == []
        assert [url for url in each.requests if not url.startswith(("file:", "blob:", "data:", LOOPBACK))] == []
        each.page.context.close()


@pytest.fixture(scope="session")
def trace() -> Trace:
    """What the shipped translator does with a sentence."""
    return gf.load("en-de").look(TEXT, keep=["weights", "logits"])


@pytest.fixture(scope="session")
def file(trace: Trace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trace.save_page(tmp_path_factory.mktemp("page") / "look.html")


@pytest.fixture(scope="session")
def long_run(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has learned nothing, but reads 2,200 tokens."""
    folder = tmp_path_factory.mktemp("runs") / "long"
    size = {"data": {"max_tokens": 2200}, "train": {"batch_tokens": 4400}, "model": {"layers": 2, "heads": 4}}
    gf.train(recipe(IDLE, size), folder)
    return folder


@pytest.fixture(scope="session")
def recurrent_run(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose model is recurrent, with gates; it has learned nothing."""
    folder = tmp_path_factory.mktemp("runs") / "lstm"
    model = {"family": "recurrent", "cell": "lstm", "width": 16, "layers": 1}
    gf.train(make_recipe({**table(IDLE), "model": model}, "lstm"), folder)
    return folder


@pytest.fixture(scope="session")
def studio_runs(trained: Translator, long_run: Path, recurrent_run: Path) -> list[Path | str]:
    """The runs of the Studio that is tested."""
    assert trained.path is not None
    return ["en-de", trained.path, long_run, recurrent_run]


@pytest.fixture(scope="session")
def studio(studio_runs: list[Path | str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Studio that was started as users start it; Ctrl-C ends it."""
    named = [part for run in studio_runs for part in ("--run", str(run))]
    command = [sys.executable, "-m", "glassformer", "studio", "--no-open", *named]
    complaints = tmp_path_factory.mktemp("studio") / "stderr.txt"  # a pipe that nobody reads would stop the server
    with (
        complaints.open("w") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process,  # noqa: S603
    ):
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("The Studio is at "), complaints.read_text()
            address = line.split()[4]
            until_it_answers(address)
            yield address
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=STARTS) in (0, 130)
            assert complaints.read_text() == ""  # no error, no traceback
        finally:
            process.kill()


def until_it_answers(address: str) -> None:
    end = time.monotonic() + STARTS
    while time.monotonic() < end:
        try:
            with urlopen(address, timeout=STARTS) as response:  # noqa: S310
                assert response.status == 200
                return
        except OSError:
            time.sleep(0.1)
    raise AssertionError(f"the Studio does not answer at {address}")
