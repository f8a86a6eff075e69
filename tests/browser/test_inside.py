"""Inside, Layers, Positions and embeddings in a browser, against the real server: the numbers are the library's."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import torch
from playwright.sync_api import Locator, Page, expect

import glassformer as gf
from glassformer.looking.plots.choosing import name
from glassformer.looking.recording import record
from glassformer.looking.sums import sum_of
from glassformer.tasks.translation import Translator

from .conftest import TEXT, Open, Opened
from .serving import fits, link
from .test_read_and_write import box

OTHER = "The cat raised its interest rates."

# The least contrast of letters with what is behind them, by the formula of WCAG 2; colours are mixed as they lie.
CONTRAST = """root => {
  const canvas = Object.assign(document.createElement("canvas"), {width: 1, height: 1});
  const context = canvas.getContext("2d", {willReadFrequently: true});
  const bytes = colours => {
    context.clearRect(0, 0, 1, 1);
    for (const each of colours) { context.fillStyle = each; context.fillRect(0, 0, 1, 1); }
    return [...context.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const luminance = rgb => {
    const [r, g, b] = rgb.map(each => each / 255)
      .map(each => each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = element => {
    const found = [];
    for (let each = element; each; each = each.parentElement) found.unshift(getComputedStyle(each).backgroundColor);
    return found;
  };
  let least = [99, ""];
  for (const element of document.querySelector(root).querySelectorAll("*")) {
    const own = [...element.childNodes].some(each => each.nodeType === 3 && each.data.trim());
    const style = getComputedStyle(element);
    if (!own || element.closest("svg, option, :disabled") || !element.offsetParent) continue;
    const paper = luminance(bytes(behind(element))), ink = luminance(bytes([...behind(element), style.color]));
    const ratio = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
    if (ratio < least[0]) least = [ratio, element.textContent];
  }
  return least;
}"""


@pytest.fixture(scope="module")
def run() -> Translator:
    found = gf.load("en-de", "cpu")
    assert isinstance(found, Translator)
    return found


@pytest.fixture(scope="module")
def trace(run: Translator) -> Any:
    """All that passes while the text is read and its translation written, at once."""
    forced = run.forced(TEXT)
    with record(run.model) as found, torch.inference_mode():
        run.model(*forced.inputs)
    return found


def begin(opened: Open, address: str, view: str, shows: str, options: Any = None, **how: Any) -> Opened:
    """A page of the Studio that shows one of the views."""
    state = {"view": view, **({"options": json.dumps({view: options})} if options else {})}
    found = opened(f"{address.split('#')[0]}#{urlencode(state)}", **how)
    found.page.wait_for_selector(f'[data-view="{view}"] {shows}')
    return found


def point(table: Locator, row: int, column: int, rows: int, columns: int) -> None:
    """Point at a cell of a table."""
    _, _, width, height = box(table)
    table.hover(position={"x": (column + 0.5) * width / columns, "y": (row + 0.5) * height / rows})


def number(text: str) -> float:
    return float(text.replace("−", "-"))


def share(page: Page, way: str, folder: Path) -> Path:
    page.get_by_role("button", name="Share").click()
    with page.expect_download() as found:
        page.get_by_role("menuitem", name=way, exact=True).click()
    path = folder / found.value.suggested_filename
    found.value.save_as(path)
    return path


def test_the_model_unfolds_down_to_the_sum_of_each_number(
    opened: Open, studio: str, run: Translator, trace: Any, tmp_path: Path
) -> None:
    page = begin(opened, studio, "inside", "canvas").page
    lanes = page.locator(".lane")
    expect(lanes).to_have_count(2)
    _, top, _, height = box(page.locator(".lanes"))
    assert top + height <= 800  # the first look fits a laptop
    said = [each.inner_text() for each in lanes.nth(1).locator(".answer bdi").all()]
    assert "".join(said).replace("·", " ").startswith("Die Bank zog ihre Zinssätze an.")

    lanes.nth(1).get_by_title("block 2: cross-attention").click()
    expect(page.get_by_role("heading", name="Decoder, block 2: cross-attention")).to_be_visible()
    page.get_by_role("group", name="head").get_by_role("button", name="3").click()
    page.get_by_role("group", name="token").get_by_role("button", name="·Bank").click()
    scores = page.get_by_role("grid", name=re.compile("^Scores"))
    shape = trace["decoder.2.cross.scores"].shape[-2:]
    point(scores, 2, 1, *shape)
    working = page.locator(".working")
    expect(working.locator("h3")).to_have_text("Score of “·bank” for “·Bank”, head 3")
    found = sum_of(run, trace, "decoder.2.cross.scores", 2, 1, 3)
    expect(working.locator(".value")).to_have_text(f"{found.value:.4f}".replace("-", "−"))
    rows = working.locator("tr")
    largest = found.steps[0].largest(10)[0]
    assert [row.locator("th").inner_text() for row in rows.all()][:10] == [term.label for term in largest]
    terms = [number(row.locator(".term").inner_text()) for row in rows.all()]
    assert sum(terms[:-1]) == pytest.approx(terms[-1], abs=0.02)  # what is written adds up, but for its digits
    assert terms[-1] == pytest.approx(found.steps[0].value, abs=1e-3)

    weights = page.get_by_role("grid", name=re.compile("^Weights"))
    point(weights, 2, 1, *shape)
    expect(working.locator("h3")).to_have_text("Weight: how much “·Bank” reads “·bank”, head 3")
    weights.click(position={"x": 1, "y": 1})
    weights.press("ArrowRight")
    page.mouse.move(0, 0)
    expect(working.locator("h3")).to_have_text("Weight: how much “start” reads “·bank”, head 3")
    value = float(trace["decoder.2.cross.weights"][0, 3, 0, 1])
    assert number(working.locator(".value").inner_text()) == pytest.approx(value, abs=1e-4)

    with share(page, "CSV", tmp_path).open(encoding="utf-8") as file:
        numbers = [row for row in csv.reader(file) if row[0] == "weights"]
    assert [float(row[3]) for row in numbers] == pytest.approx(
        trace["decoder.2.cross.weights"][0, 3].flatten().tolist()
    )
    assert "W_o · heads + b" in share(page, "SVG", tmp_path).read_text(encoding="utf-8")
    again = opened(link(page)).page  # the link restores what is seen
    expect(again.locator(".working h3")).to_have_text("Weight: how much “start” reads “·bank”, head 3")

    page.get_by_role("button", name="the part after").click()
    expect(page.get_by_role("heading", name="Decoder, block 2: feed-forward")).to_be_visible()
    point(page.get_by_role("grid", name=re.compile("^Hidden")), 3, 10, 20, 64)
    expect(working.locator("h3")).to_have_text("Hidden unit of “·Bank”, number 202")
    unit = float(trace["decoder.2.ff.hidden"][0, 2, 202])
    expect(working.locator(".value")).to_have_text(f"{unit:.4f}")
    page.keyboard.press("Escape")
    expect(page.locator(".unfolded")).to_have_count(0)

    saved = share(page, "Save as one file", tmp_path)
    offline = opened(saved).page
    offline.get_by_role("button", name="Inside").click()
    offline.get_by_title("block 2: cross-attention").click()
    point(offline.get_by_role("grid", name=re.compile("^Weights")), 0, 1, *shape)
    expect(offline.locator(".working .value")).to_have_text(re.compile(r"\d"))


def test_cells_of_a_recurrent_model_over_time(opened: Open, studio: str, recurrent_run: Path) -> None:
    page = begin(opened, f"{studio}", "inside", "canvas").page
    page.get_by_label("run").select_option(recurrent_run.name)
    expect(page.locator(".lane").first.locator(".title", has_text="LSTM 0")).to_be_visible()
    page.get_by_title("LSTM 0: LSTM").first.click()
    for each in ("Forget gate", "Input gate", "Output gate", "Candidate", "Cell", "State"):
        expect(page.get_by_role("grid", name=re.compile(f"^{each}, "))).to_be_visible()
    gate = page.get_by_role("grid", name=re.compile("^Forget gate"))
    point(gate, 0, 0, 5, 16)
    expect(page.locator(".working h4")).to_have_text("σ(W x + U h + b)")
    assert 0 <= number(page.locator(".working .value").inner_text()) <= 1


def test_layers_say_what_the_analyses_say(
    opened: Open, studio: str, run: Translator, trace: Any, tmp_path: Path
) -> None:
    layers = begin(opened, studio, "layers", "table")
    page = layers.page
    written = run.forced(TEXT).written or []
    lens = gf.analyses.logit_lens(run, trace)
    cells = page.locator(".lens tbody tr")
    for row, texts in enumerate(lens.texts()):
        assert cells.nth(row).locator("button").all_inner_texts() == [name(text) for text in texts]
    cells.last.locator("button").nth(1).click()
    expect(page.get_by_role("heading", name="What each part adds to ·Bank")).to_be_visible()
    total = page.locator("tr.total")
    expect(total).to_contain_text("the score of ·Bank")
    shown = [number(each) for each in page.locator("tr:not(.total) > td.value").all_inner_texts()]
    assert sum(shown) == pytest.approx(number(total.locator(".value").inner_text()), abs=0.06)
    page.get_by_label("by head").check()
    expect(page.get_by_role("rowheader", name="block 2, cross-attention, head 3")).to_be_visible()

    found = gf.analyses.occlusion(run, TEXT, position=1, written=written).words().of("encoder")
    speaks = page.locator(".words").first.locator(".word")
    expect(speaks.nth(1)).to_contain_text(re.compile(r"\d"))
    assert number(speaks.nth(1).locator(".value").inner_text()) == pytest.approx(float(found.values[0, 1]), abs=0.01)
    page.get_by_role("button", name="Integrated gradients").click()
    page.get_by_role("button", name=re.compile("Follow the path")).click()
    expect(page.get_by_text("The sum misses the difference by")).to_be_visible()
    rival = page.get_by_label("the word that it is compared with")
    rival.select_option(index=1)
    expect(total).to_contain_text("less that of")

    page.get_by_label("second text").fill(OTHER)
    page.get_by_role("button", name="Patch").click()
    expect(page.locator("th.differs")).to_have_text("·bank/·cat")
    page.get_by_label("second text").fill("The cat.")
    page.get_by_role("button", name="Patch").click()
    expect(page.get_by_role("status").first).to_contain_text("choose texts of the same length")
    assert [each for each in layers.complaints if "400" not in each] == []  # the browser itself notes what was refused
    layers.complaints.clear()
    with share(page, "CSV", tmp_path).open(encoding="utf-8") as file:
        assert {row[0] for row in csv.reader(file)} >= {"lens", "part", "patching"}


def test_positions_and_embeddings(opened: Open, studio: str, run: Translator, tmp_path: Path) -> None:
    page = begin(opened, studio, "positions", ".slider").page
    expect(page.get_by_role("heading", name="Sinusoids")).to_be_visible()
    page.get_by_label("second text").fill("We sat on the bank of the river.")
    page.get_by_role("main").get_by_role("button", name="Compare").click()
    maps = page.get_by_role("group", name=re.compile("^(Static|In context)$"))
    expect(maps.first.locator(".token.other")).to_have_count(9)
    maps.first.get_by_role("button", name="·bank").first.click()
    traces = [
        run.look(text, keep=["embedding", "before", "after", "output"])
        for text in (TEXT, "We sat on the bank of the river.")
    ]
    found = gf.analyses.neighbours(traces, 0, 1, top=6)
    nearest = page.locator("aside ol").last.locator("bdi")
    for layer in (len(found.points) - 1, 3):
        page.get_by_role("slider").fill(str(layer))
        expect(nearest.first).to_have_text(name(found.tokens[layer][0]))
        assert nearest.all_inner_texts() == [name(text) for text in found.tokens[layer]]
    token = int(traces[0]["encoder.tokens"][0, 1])
    static = [run.tokenizer.tokens([each])[0] for each, _ in gf.analyses.table_neighbours(run, token, top=6)]
    assert page.locator("aside ol").first.locator("bdi").all_inner_texts() == [name(text) for text in static]
    picture = share(page, "PNG", tmp_path).read_bytes()
    assert picture.startswith(b"\x89PNG")
    page.get_by_role("button", name="Decoder", exact=True).click()
    expect(maps.first.get_by_role("button", name="Die")).to_be_visible()


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (820, "dark"), (1280, "dark")])
def test_every_size_and_theme_can_be_read(opened: Open, studio: str, width: int, scheme: str) -> None:
    cell = {"point": "decoder.1.cross.weights", "token": 1, "at": 1, "head": 0}
    for view, shows, options in (
        ("inside", ".working table", {"part": "decoder.1.cross", "cell": cell}),
        ("layers", ".word", None),
        ("positions", ".slider", None),
    ):
        page = begin(opened, studio, view, shows, options, width=width, scheme=scheme, scale=1).page
        assert fits(page, width)
        ratio, text = page.evaluate(CONTRAST, f'[data-view="{view}"]')
        assert ratio >= 4.5, text
