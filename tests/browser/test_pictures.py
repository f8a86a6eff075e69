"""What is taken away as a picture: all of a view, as it is read; and the tree of a search by the keyboard."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from playwright.sync_api import Browser, Page, expect

from every_task import EveryTask

from .serving import link, served, visited
from .test_faces import at

TEXT = "a b c d"
READ = {"decode": "[data-tree]", "layers": ".bar", "positions": ".token"}


@pytest.fixture(scope="module")
def studio(every_task: EveryTask) -> Iterator[str]:
    with served([every_task.path("copy")]) as url:
        yield url


def picture(page: Page, folder: Path) -> ElementTree.Element:
    """The view as SVG."""
    page.get_by_role("button", name="Share").click()
    with page.expect_download() as taken:
        page.get_by_role("menuitem", name="SVG").click()
    path = folder / "picture.svg"
    taken.value.save_as(path)
    return ElementTree.parse(path).getroot()  # noqa: S314  (it is ours)


def texts(drawing: ElementTree.Element) -> list[str]:
    return [each.text or "" for each in drawing.iter("{http://www.w3.org/2000/svg}text")]


def test_words_keep_their_spaces_and_controls_their_values(browser: Browser, studio: str, tmp_path: Path) -> None:
    with visited(browser, at(studio, "copy", TEXT, view="layers")) as page:
        page.locator(READ["layers"]).first.wait_for()
        shown = texts(picture(page, tmp_path))
        assert "bold" in shown
        assert " is what was written." in shown
        assert page.get_by_label("the word that is explained").locator("option:checked").inner_text() in shown
        assert "(nothing: the score itself)" in shown
        assert any(each.startswith("Block 0") for each in shown)  # as its style writes it


def test_the_whole_tree_is_in_the_picture_and_the_page_stays_as_it_was(
    browser: Browser, studio: str, tmp_path: Path
) -> None:
    options = '{"how":{"beam":12}}'
    with visited(browser, at(studio, "copy", TEXT, view="decode", options=options), 390, 844) as page:
        tree = page.locator(READ["decode"])
        high, wide = tree.evaluate("each => { each.scrollTop = 40; return [each.scrollHeight, each.scrollWidth]; }")
        before = tree.evaluate("each => [each.clientHeight, each.clientWidth, each.scrollTop, each.style.cssText]")
        assert wide > before[1]
        drawing = picture(page, tmp_path)
        assert float(drawing.attrib["height"]) > high
        assert float(drawing.attrib["width"]) > wide
        assert (
            tree.evaluate("each => [each.clientHeight, each.clientWidth, each.scrollTop, each.style.cssText]") == before
        )


def test_the_menu_is_walked_by_keys_and_leaving_it_changes_nothing(browser: Browser, studio: str) -> None:
    with visited(browser, at(studio, "copy", TEXT)) as page:
        page.locator(".rows button").last.click()
        url = link(page)
        page.get_by_role("button", name="Share").focus()
        page.keyboard.press("Enter")
        page.keyboard.press("ArrowDown")
        expect(page.get_by_role("menuitem", name="Copy link")).to_be_focused()
        page.keyboard.press("ArrowUp")
        expect(page.get_by_role("menuitem", name="Save as one file")).to_be_focused()
        page.keyboard.press("Escape")
        expect(page.get_by_role("menuitem")).to_have_count(0)
        expect(page.get_by_role("button", name="Share")).to_be_focused()
        assert link(page) == url  # the word that was chosen is still


def test_the_tree_is_walked_and_taken_by_keys(browser: Browser, studio: str) -> None:
    with visited(browser, at(studio, "copy", TEXT, view="decode", options='{"how":{"beam":3}}')) as page:
        tree = page.locator(READ["decode"])
        expect(tree.locator("[tabindex='0']")).to_have_count(1)
        tree.locator("[tabindex='0']").focus()
        first = page.evaluate("document.activeElement.getAttribute('aria-label')")
        page.keyboard.press("ArrowDown")
        beside = page.evaluate("document.activeElement.getAttribute('aria-label')")
        assert beside != first
        expect(page.locator(".said")).to_have_text(beside)
        page.keyboard.press("ArrowUp")
        page.keyboard.press("ArrowRight")
        assert page.evaluate("document.activeElement.getAttribute('aria-label')") not in (first, beside)
        page.keyboard.press("ArrowLeft")
        assert page.evaluate("document.activeElement.getAttribute('aria-label')") == first
        page.keyboard.press("Enter")
        expect(page.get_by_role("button", name="begins with")).to_be_visible()


@pytest.mark.parametrize("width", [1280, 768, 390])
def test_names_on_a_map_are_as_large_as_other_words(browser: Browser, studio: str, width: int) -> None:
    with visited(browser, at(studio, "copy", TEXT, view="positions"), width) as page:
        expect(page.locator("figure svg")).to_have_count(3)  # the chart, and both maps
        scales = page.evaluate("[...document.querySelectorAll('figure svg')].map(each => each.getScreenCTM().a)")
        assert scales == pytest.approx([1, 1, 1], abs=0.01)
        ticks = page.locator("figure", has_text="How alike, by distance").locator("svg text[text-anchor=end]")
        numbers = [float(each.replace("−", "-")) for each in ticks.all_text_contents()]
        assert len(numbers) >= 3
        assert all(round(20 * each) == pytest.approx(20 * each) for each in numbers)  # round ones
