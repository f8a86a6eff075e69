"""Linked views: a token, a layer or a head that is pointed at in one is marked in all, and a link restores it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from every_task import EveryTask
from glassformer.looking import intervene
from glassformer.looking.ablation import head_effects

from .conftest import TEXT
from .serving import link, served, visited
from .test_faces import at

RUNS = ("copy", "bart", "images", "captioning", "gpt2", "llama", "embedding")
LONG = [  # the longest word stands far from the beginning
    "Where is the old station, and when does the next train to the sea leave in the summer, if you happen to know?",
    "I saw him, as he was on his way to the shop at the end of the road, and I asked him about independence.",
]


@pytest.fixture(scope="module")
def studio(every_task: EveryTask) -> Iterator[str]:
    with served(["en-de", *(every_task.path(name) for name in RUNS)]) as url:
        yield url


def go(page: Page, view: str) -> None:
    page.get_by_role("button", name=view, exact=True).click()


def test_a_head_and_a_word_are_marked_in_all_views(browser: Browser, studio: str) -> None:
    with visited(browser, at(studio, "en-de", TEXT)) as page:
        page.locator(".rows button", has_text="ihre").click()
        page.get_by_role("button", name="layer 1, head 2,").click()
        go(page, "Inside")
        expect(page.locator(".parts .marked")).to_have_count(1)
        go(page, "Layers")
        page.get_by_label("by head").check()
        expect(page.locator("tr.marked th")).to_have_text("block 1, cross-attention, head 2")
        expect(page.locator("tbody th.now")).to_have_text("block 1")
        expect(page.locator("thead th.now")).to_have_text("g")  # after which the word is written
        go(page, "Positions & embeddings")
        expect(page.get_by_role("button", name="Decoder", exact=True)).to_have_attribute("aria-pressed", "true")
        expect(page.locator(".token.now").first).to_have_attribute("aria-label", "·ihre")
        page.get_by_role("button", name="Encoder", exact=True).click()
        page.locator(".token[aria-label='·interest']").first.click()
        go(page, "Layers")
        expect(page.locator(".word.pointed")).to_contain_text("interest")
        page.get_by_role("button", name="block 0, cross-attention, head 4").click()
        go(page, "Read & write")
        expect(page.locator(".which")).to_have_text("cross attention, layer 0, head 4.")
        expect(page.locator(".readout h3").first).to_have_text("interest is read by")
        page.get_by_role("button", name="Matrix").click()
        expect(page.locator(".columns .on")).to_have_text("interest")


def test_compare_looks_at_what_the_others_look_at(browser: Browser, studio: str) -> None:
    options = json.dumps({"compare": {"other": "bart"}})
    with visited(browser, at(studio, "copy", "a b c d", options=options)) as page:
        page.get_by_role("button", name="layer 0, head 0,").click()
        page.locator(".rows button").nth(1).click()
        go(page, "Compare")
        expect(page.locator(".heads h3").first).to_have_text("A, layer 0, head 0")
        chosen = page.locator(".heads .rows .on")
        expect(chosen).to_have_count(2)  # on both sides
        page.locator("[data-head='0 1']").click()
        page.locator(".heads canvas").first.click(position={"x": 5, "y": 5})
        go(page, "Read & write")
        expect(page.locator(".which")).to_have_text("cross attention, layer 0, head 1.")
        expect(page.locator(".rows button").first).to_have_attribute("aria-pressed", "true")


def test_compare_shows_what_language_models_write(browser: Browser, studio: str, every_task: EveryTask) -> None:
    options = json.dumps({"compare": {"other": "llama"}})
    with visited(browser, at(studio, "gpt2", "the red", view="compare", options=options)) as page:
        written = [each.generate(["the red"], 20)[0].text for each in map(every_task, ("gpt2", "llama"))]
        shown = [" ".join(each.removeprefix("the red").split()) for each in written]
        expect(page.locator(".output p")).to_have_text(shown)


def test_what_is_typed_stays_and_a_link_brings_what_took_long(browser: Browser, studio: str) -> None:
    with visited(browser, at(studio, "copy", "a b c d", view="layers")) as page:
        page.get_by_label("second text").fill("a b a d")
        page.get_by_role("button", name="Heads", exact=True).click()
        page.get_by_role("button", name="Patch").click()
        cells = cells_of(page)
        expect(cells.first).to_be_visible()
        cells.nth(1).click()
        expect(page.locator("td.marked")).to_have_count(1)
        cells.nth(1).press("ArrowLeft")
        expect(cells.first).to_be_focused()
        cells.first.press("Enter")
        expect(page.locator("td.marked")).to_have_attribute("data-cell", "0 0")
        page.get_by_role("button", name="Integrated gradients").click()
        page.get_by_role("button", name="Follow the path").click()
        expect(page.locator(".word").first).to_be_visible()
        values, spoken = cells.all_inner_texts(), page.locator(".word").all_inner_texts()
        url = link(page)
    with visited(browser, url) as page:
        expect(cells_of(page)).to_have_text(values)
        expect(page.locator(".word")).to_have_text([text.replace("\n", " ") for text in spoken])
        page.locator("[data-cell]").first.click()  # another word is another question
        assert '"patched":false' in page.evaluate("decodeURIComponent(location.hash)")
    with visited(browser, at(studio, "copy", "a b c d", beneath="effect")) as page:
        expect(page.get_by_role("button", name="What matters")).to_have_attribute("aria-pressed", "true")
        expect(page.get_by_role("button", name="nats").first).to_be_visible()


def test_a_link_has_the_form_of_the_tree(browser: Browser, studio: str) -> None:
    with visited(browser, at(studio, "en-de", TEXT, view="decode")) as page:
        expect(page.locator(".node.pruned").first).to_be_visible()
        page.get_by_label("show what was pruned").uncheck()
        expect(page.locator(".node.pruned")).to_have_count(0)
        url = link(page)
    with visited(browser, url) as page:
        expect(page.locator(".node.kept").first).to_be_visible()
        expect(page.locator(".node.pruned")).to_have_count(0)


def cells_of(page: Page) -> Any:
    return page.locator("table td[title*='comes back']")


@pytest.mark.parametrize(
    "how", [{"decode": {"step": "x", "temperature": []}}, {"how": None, "read": 5}, {"tour": {"step": "x"}}]
)
def test_a_link_that_is_wrong_breaks_nothing(browser: Browser, studio: str, how: Any) -> None:
    view = "decode" if "decode" in how else "read"
    with visited(browser, at(studio, "en-de", TEXT, view=view, options=json.dumps(how))) as page:
        expect(page.locator(".output bdi")).not_to_be_empty()


def test_changes_that_a_model_refuses_can_be_undone(browser: Browser, studio: str) -> None:
    how = {"off": [{"kind": "decoder.cross", "layer": 9, "head": 9}]}  # of another model
    with visited(browser, at(studio, "copy", "a b c d", options=json.dumps({"how": how})), refused=True) as page:
        expect(page.locator(".notice.shown")).to_contain_text("There is no head 9 in layer 9 of decoder.cross.")
        page.get_by_role("button", name="Undo all changes").click()
        expect(page.locator(".words").first).to_be_visible()
        expect(page.locator(".notice.shown")).to_have_count(0)


def test_a_view_that_cannot_be_drawn_says_so_and_begins_again(browser: Browser, studio: str) -> None:
    options = json.dumps({"positions": {"layer": -1}})
    with visited(browser, at(studio, "copy", "a b c d", view="positions", options=options)) as page:
        expect(page.locator(".notice.shown")).to_contain_text("This view went wrong")
        page.get_by_role("button", name="Begin again").click()
        expect(page.locator(".slider output")).to_be_visible()
        expect(page.locator(".notice.shown")).to_have_count(0)


def test_heads_that_see_an_image_are_switched_off(browser: Browser, studio: str, every_task: EveryTask) -> None:
    run: Any = every_task("captioning")
    image = run.suggestions()[0]
    with visited(browser, at(studio, "captioning", image)) as page:
        page.get_by_role("button", name="What matters").click()
        effect = head_effects(run, run.from_page(image))["decoder.cross"].of("decoder.0.cross", 0)
        shown = f"layer 0, head 0, effect {effect:.1f} nats".replace("-", "−")
        page.get_by_role("button", name=shown).click()
        page.get_by_role("button", name="Switch this head off").click()
        with intervene(run) as edit:
            edit.zero("decoder.0.cross.heads", heads=0)
            without = run.look(run.from_page(image), keep=["logits"]).output
        expect(page.locator(".changes .chip")).to_have_text("cross, layer 0, head 0 off ×")
        expect(page.locator(".output bdi")).to_have_text(without)
        page.get_by_role("button", name="encoder self-attention").click()
        expect(page.locator(".explain").first).to_contain_text("the class token reads a patch")


def test_what_is_switched_off_is_said_of_a_run_that_writes_nothing(browser: Browser, studio: str) -> None:
    with visited(browser, at(studio, "embedding", "my apple")) as page:
        page.get_by_role("button", name="layer 0, head 0,").click()
        expect(page.get_by_role("button", name="What matters")).to_have_count(0)
        page.get_by_role("button", name="Switch this head off").click()
        page.get_by_role("button", name="encoder self, layer 0, head 0 off").click()
        expect(page.get_by_role("button", name="Switch this head off")).to_be_visible()


@pytest.mark.parametrize("text", LONG)
def test_the_word_that_is_pointed_at_first_is_in_sight(browser: Browser, studio: str, text: str) -> None:
    with visited(browser, at(studio, "en-de", text)) as page:
        page.locator("main[aria-busy=false]").wait_for()
        expect(page.locator(".rows .own")).to_be_in_viewport(ratio=1)
