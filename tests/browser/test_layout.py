"""How the Studio's page is set: what fits on a screen, one type scale, and maps that are painted in time."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from .serving import served, visited
from .test_read_and_write import box

WEB = Path(__file__).parents[2] / "web"
SCALE = {"12px", "13.5px", "15px", "18px", "24px"}
FRAME = "[data-view='read and write']"
TOP = ".app > header"  # views have headers of their own
TRIES = 3  # to be quick, on a machine that others use too
VIEWS = {"read": ".words", "decode": "[data-tree]", "inside": ".title", "layers": ".word", "positions": ".slider"}

# The sizes of all letters that are seen, with an example of each.
SIZES = """() => Object.fromEntries([...document.querySelectorAll("[data-view] *")]
  .filter(each => !["SUP", "OPTION"].includes(each.tagName) && [...each.childNodes].some(node => node.nodeType === 3
    && node.data.trim()) && each.checkVisibility())
  .map(each => [getComputedStyle(each).fontSize, each.outerHTML.slice(0, 80)]))"""

# Words of titles that stand on two lines, broken where no space is.
BROKEN = """() => [...document.querySelectorAll(".head .title")].flatMap(title => {
  const node = title.firstChild, found = [];
  for (const word of node.data.matchAll(/[a-z]+/gi)) {
    const range = document.createRange();
    range.setStart(node, word.index);
    range.setEnd(node, word.index + word[0].length);
    if (new Set([...range.getClientRects()].map(each => Math.round(each.top))).size > 1) found.push(word[0]);
  }
  return found;
})"""

# The time that 48 heads of 512 x 512 weights take: of each head the best of some, since others use the machine too.
PAINTING = """async code => {
  const {paint} = await import(URL.createObjectURL(new Blob([code], {type: "text/javascript"})));
  const weights = Float32Array.from({length: 512 * 512}, Math.random);
  const table = Uint32Array.from({length: 256}, (_, step) => 0xff000000 | step);
  const canvases = Array.from({length: 48}, () => document.createElement("canvas"));
  const best = canvases.map(() => Infinity);
  for (let turn = 0; turn < 12; turn++) canvases.forEach((canvas, head) => {
    const start = performance.now();
    paint(canvas, weights, 512, table, false);
    best[head] = Math.min(best[head], performance.now() - start);
  });
  const pixel = canvases[7].getContext("2d").getImageData(3, 5, 1, 1).data[0];
  return [best.reduce((sum, each) => sum + each), pixel === Math.floor(weights[5 * 512 + 3] * 255 + 0.5)];
}"""
TRANSPILE = """const ts = require("typescript"), text = require("fs").readFileSync(process.argv[1], "utf8");
process.stdout.write(ts.transpileModule(text, {compilerOptions: {target: "es2022", module: "es2022"}}).outputText);"""


@pytest.fixture(scope="module")
def studio() -> Iterator[str]:
    with served(["en-de"]) as url:
        yield url


def test_the_first_screen_needs_no_scrolling(browser: Browser, studio: str) -> None:
    with visited(browser, studio) as page:
        expect(page.locator(".readout section")).to_have_count(2)
        page.locator("main[aria-busy=false]").wait_for()
        assert page.evaluate("document.documentElement.scrollHeight") <= 800
        left, _, width, _ = box(page.locator(TOP))
        assert box(page.locator("#text"))[::2] == (left, width)


def test_a_phone_has_one_line_for_the_frame_and_shows_the_tab_that_is_open(browser: Browser, studio: str) -> None:
    with visited(browser, f"{studio}#view=positions", 390, 844) as page:
        page.locator("main[aria-busy=false] .slider").wait_for()
        tops = {round(box(each)[1] / 20) for each in page.locator(f"{TOP} > :not(nav)").all()}
        assert len(tops) == 1
        tab = page.locator("nav [aria-current=page]")
        expect(tab).to_have_text("Positions & embeddings")
        expect(tab).to_be_in_viewport(ratio=0.9)


@pytest.mark.parametrize("width", [1280, 820, 390])
def test_there_is_one_type_scale_and_no_title_is_broken(browser: Browser, studio: str, width: int) -> None:
    for view, until in VIEWS.items():
        with visited(browser, f"{studio}#view={view}", width) as page:
            page.locator(f"main {until}").first.wait_for()
            found = page.evaluate(SIZES)
            assert found.keys() <= SCALE, {size: each for size, each in found.items() if size not in SCALE}
            assert page.evaluate(BROKEN) == []


def module(path: str) -> str:
    """A module of the page that imports no other, as JavaScript."""
    node = shutil.which("node")
    if node is None or not (WEB / "node_modules" / "typescript").is_dir():
        pytest.skip("there is no Node, or what web/ needs is not installed: make setup")
    command = [node, "-e", TRANSPILE, path]
    return subprocess.run(command, cwd=WEB, capture_output=True, text=True, check=True).stdout  # noqa: S603


def test_ticks_of_a_chart_have_as_many_digits_as_tell_them_apart(browser: Browser) -> None:
    page = browser.new_page()
    ticks = """async ([code, values]) =>
      (await import(URL.createObjectURL(new Blob([code], {type: "text/javascript"})))).ticks(values)"""
    code = module("src/studio/training/curves.ts")
    assert page.evaluate(ticks, [code, [1, 1.005, 1.01, 1.015]]) == ["1", "1.005", "1.01", "1.015"]
    assert page.evaluate(ticks, [code, [0, 0.5, None, 2000]]) == ["0", "0.5", "", "2,000"]
    page.close()


def test_48_heads_of_512_tokens_are_painted_in_40_milliseconds(browser: Browser) -> None:
    code = module("src/colours.ts")
    page = browser.new_page()
    for _ in range(TRIES):
        milliseconds, is_right = page.evaluate(PAINTING, code)
        assert is_right
        if milliseconds < 40:
            break
    page.close()
    assert milliseconds < 40


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_theme_that_is_chosen_is_seen_whatever_the_system_says(browser: Browser, studio: str, scheme: str) -> None:
    papers = {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 27)"}
    with visited(browser, studio, scheme=scheme) as page:
        frame, button = page.locator(FRAME), page.locator("header button.theme:not([data-tour])")
        expect(frame).to_have_css("background-color", papers[scheme])
        for theme in ("light", "dark"):  # then it is the system's again
            button.click()
            expect(frame).to_have_css("background-color", papers[theme])
        button.click()
        expect(frame).to_have_css("background-color", papers[scheme])
    with visited(browser, f"{studio}#theme=dark", scheme=scheme) as page:
        expect(page.locator(FRAME)).to_have_css("background-color", papers["dark"])
