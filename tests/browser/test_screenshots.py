"""The pictures of pages in the README and the documents are made by these tests, of the real pages.

    python -m pytest tests/browser/test_screenshots.py --screenshots=write    # into docs/looking/pictures

Without the option they are made in a temporary folder, so that they can always be made.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
from PIL import Image
from playwright.sync_api import Locator, Page

import glassformer as gf
from glassformer.recipe import bundled
from glassformer.recipe.reading import read_table

from .conftest import Open
from .serving import served

PICTURES = Path(__file__).parents[2] / "docs" / "looking" / "pictures"
PATIENCE = 120_000  # milliseconds, on a busy machine
Save = Callable[..., None]


@pytest.fixture
def save(pytestconfig: pytest.Config, tmp_path: Path) -> Save:
    """Keeps a picture of a page, which must not be empty and not be large."""
    folder = PICTURES if pytestconfig.getoption("--screenshots") == "write" else tmp_path

    def keep(page: Page, name: str, full_page: bool = True) -> None:
        picture = page.screenshot(path=folder / f"{name}.png", full_page=full_page)
        colours = Image.open(io.BytesIO(picture)).convert("RGB").getcolors(1 << 24)
        assert colours is not None
        assert len(colours) > 100
        assert len(picture) < 400_000
        assert (PICTURES / f"{name}.png").is_file()

    return keep


@pytest.fixture(scope="module")
def shipped() -> Iterator[str]:
    """The address of a Studio with the model that ships."""
    with served([]) as url:
        yield url


@pytest.fixture(scope="module")
def learning(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Studio with a small model that learns to reverse words, and the one that ships."""
    recipe = read_table(bundled()["reverse"])
    steps = 400 if pytestconfig.getoption("--screenshots") == "write" else 100  # which is not yet worth showing
    recipe["train"] |= {"steps": steps, "validate_every": 50, "log_every": 10}
    folder = tmp_path_factory.mktemp("learning") / "reverse"
    gf.train({**recipe, "look": {"texts": ["a b c d e f"], "every": 50}}, folder)
    with served([folder, "en-de"]) as url:
        yield url


def idle(page: Page) -> None:
    """Nothing is computed any more."""
    page.locator("main[aria-busy=false]").wait_for(timeout=PATIENCE)


def waited(place: Locator) -> None:
    place.first.wait_for(timeout=PATIENCE)


def test_a_saved_page(opened: Open, file: Path, save: Save) -> None:
    page = opened(file, width=1160, height=640, scale=1.5).page
    waited(page.locator(".rows button", has_text="Zinssätze"))
    save(page, "interactive")


def test_the_first_screens(opened: Open, shipped: str, save: Save) -> None:
    page = opened(shipped, scale=1.5).page
    waited(page.locator(".rows button", has_text="Zinssätze"))
    idle(page)
    save(page, "studio-read", full_page=False)
    page.get_by_role("button", name="Decoding").click()
    waited(page.locator("[data-tree]"))
    page.get_by_role("group", name="tokens of the output").locator("button").nth(6).click()
    idle(page)
    page.mouse.move(0, 0)
    save(page, "studio-decode")


@pytest.mark.parametrize(
    ("view", "until", "options"),
    [
        (
            "inside",
            ".working table",
            {
                "part": "decoder.2.cross",
                "cell": {"point": "decoder.2.cross.scores", "token": 1, "at": 1, "head": 3},
                "heads": {"decoder.2.cross": 3},
            },
        ),
        ("layers", ".word", {}),
        ("positions", ".slider", {"other": "We sat on the bank of the river."}),
    ],
)
def test_inside_the_model(
    opened: Open, shipped: str, save: Save, view: str, until: str, options: dict[str, object]
) -> None:
    state = urlencode({"view": view, "options": json.dumps({view: options})})
    page = opened(f"{shipped}#{state}", scale=1.5).page
    waited(page.locator(f'[data-view="{view}"] {until}'))
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(500)  # points of a map move for a moment
    save(page, f"studio-{view}")


def test_training_and_the_tour(opened: Open, learning: str, save: Save) -> None:
    page = opened(f"{learning}#view=training", height=1300, scale=1.5).page
    waited(page.get_by_label("step of the training"))
    waited(page.locator(".rows button"))
    save(page, "studio-training", full_page=False)
    page = opened(f'{learning}#run=en-de&options={{"tour":{{"step":2}}}}', scale=1.5).page
    waited(page.locator(".unfolded aside", has_text="Score of"))
    page.wait_for_timeout(2000)
    save(page, "studio-tour", full_page=False)
