"""The tour drives the page with the model that ships, and what its texts say is so."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from every_task import EveryTask

from .serving import fits, link, served, until, visited
from .test_read_and_write import box

TITLES = [
    "Why attention",
    "Query, key, value",
    "Divided by √d",
    "Softmax and weighted sum",
    "Many heads",
    "Positions",
    "The mask",
    "Cross-attention",
    "Greedy decoding",
    "Beam search",
    "Now yours",
]


@pytest.fixture(scope="module")
def studio(every_task: EveryTask) -> Iterator[str]:
    with served([every_task.path("copy"), "en-de"]) as url:
        yield url


def framed(page: Page) -> None:
    """Something is pointed at, and can be seen beside the card, when it has been scrolled to."""
    size = page.viewport_size
    assert size is not None
    frame, card = page.locator(".frame[aria-hidden]"), page.get_by_role("dialog", name="tour")

    def beside() -> bool:
        pointed, said = frame.bounding_box(), card.bounding_box()
        if pointed is None or said is None:
            return False
        apart = pointed["y"] < said["y"] or pointed["x"] > said["x"] + said["width"]
        return apart and -10 <= pointed["y"] <= size["height"] - 60

    expect(frame).to_be_visible()
    assert until(beside), (frame.bounding_box(), card.bounding_box())
    assert fits(page, size["width"])


@pytest.mark.parametrize(("width", "height", "scheme"), [(1280, 800, "light"), (390, 844, "dark")])
def test_the_tour_goes_forward_and_back_and_can_be_left(
    browser: Browser, studio: str, width: int, height: int, scheme: str
) -> None:
    with visited(browser, studio, width, height, scheme) as page:
        page.get_by_role("button", name="Tour").click()
        card = page.get_by_role("dialog", name="tour")
        for number, title in enumerate(TITLES):
            expect(card.locator("h2")).to_have_text(title)
            framed(page)
            if number < len(TITLES) - 1:
                page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowLeft")
        expect(card.locator("h2")).to_have_text("Beam search")
        card.get_by_role("button", name="Back").click()
        expect(card.locator("h2")).to_have_text("Greedy decoding")
        left = link(page)
        page.keyboard.press("Escape")
        expect(card).to_have_count(0)
        expect(page.locator("header select")).to_have_value("en-de")
    with visited(browser, left, width, height, scheme) as page:  # a link leads back into it
        expect(page.get_by_role("dialog", name="tour").locator("h2")).to_have_text("Greedy decoding")
        page.get_by_role("button", name="leave the tour").click()
        expect(page.get_by_role("dialog", name="tour")).to_have_count(0)


def test_what_the_tour_says_of_the_model_is_so(browser: Browser, studio: str) -> None:
    def at(step: int) -> str:
        return f'{studio}#run=en-de&options={{"tour":{{"step":{step}}}}}'

    with visited(browser, at(0)) as page:
        expect(page.locator(".readout h3").first).to_contain_text("Zinssätze")
        expect(page.locator(".readout section").first.locator("li bdi")).to_contain_text(["interest", "rates"])
    with visited(browser, at(2)) as page:
        expect(page.locator(".unfolded aside")).to_contain_text("Score of")
        expect(page.locator(".unfolded .tables")).to_contain_text("q · k / √64")
    with visited(browser, at(6)) as page:
        expect(page.locator(".which")).to_contain_text("decoder self-attention")
        canvas = page.locator("[role=application] canvas")
        expect(canvas).to_be_visible()
        expect(page.locator(".which")).to_be_in_viewport()
        assert box(page.locator(".numbers"))[1] >= sum(box(canvas)[1::2])  # nothing lies on the map
    with visited(browser, at(8)) as page:
        expect(page.locator(".candidates li bdi").first).to_have_text("·In")
        expect(page.locator(".candidates li.marked bdi")).not_to_have_text("·In")
    with visited(browser, at(9)) as page:
        expect(page.locator(".candidates li")).not_to_have_count(0)
        assert page.locator(".candidates li").nth(1).evaluate("each => each.classList.contains('marked')")
        outputs = page.locator(".search tbody td bdi")
        expect(outputs).to_have_count(2)
        assert outputs.nth(0).inner_text() != outputs.nth(1).inner_text()
