"""The Studio in a browser, against the real server: what a person does on its first screens.

What is on the page is compared with what the library says.
"""

from __future__ import annotations

import csv
import re
import socket
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

import glassformer as gf
from glassformer.decoding import Sampler
from glassformer.looking.ablation import head_effects
from glassformer.looking.sharpest import sharpest
from glassformer.tasks.translation import Translator

from .conftest import TEXT, Open, Opened
from .serving import fits, link
from .test_read_and_write import CONTRAST, bars, digits, heading, word

TRIES = 3  # to be quick, on a machine that others use too
PAINTED = "() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
ONLY_RECORDED = "This file has only what was recorded; open the Studio for more."


@pytest.fixture(scope="module")
def run() -> Translator:
    found = gf.load("en-de", "cpu")
    assert isinstance(found, Translator)
    return found


def begin(opened: Open, address: str | Path, **how: Any) -> Opened:
    """A page of the Studio that shows something."""
    found = opened(address, **how)
    found.page.wait_for_selector(".words button, [role=application], [data-tree]")
    return found


def output(page: Page) -> str:
    return " ".join(page.locator(".output bdi").inner_text().split())


def share(page: Page, way: str, folder: Path) -> Path:
    page.get_by_role("button", name="Share").click()
    with page.expect_download() as found:
        page.get_by_role("menuitem", name=way).click()
    path = folder / found.value.suggested_filename
    found.value.save_as(path)
    return path


def test_a_newcomer_sees_at_once_which_word_was_read_for_which(opened: Open, studio: str, run: Translator) -> None:
    for _ in range(TRIES):
        found = begin(opened, studio)
        page = found.page
        painted = page.wait_for_function(PAINTED).json_value()  # what there is to see is a moment later seen
        if painted < 1000:
            break
    assert painted < 1000
    head = sharpest(run.look(TEXT, keep="weights").words())
    assert output(page) == run.translate([TEXT])[0].text
    place = max(range(len(head.rows)), key=lambda row: len(head.rows[row]))
    assert heading(page) == f"To write {head.rows[place]} it read"  # before anything is done
    weights = head.weights[place]
    assert bars(page)[0] == (head.columns[int(weights.argmax())], digits(float(weights.max())))
    assert not [url for url in found.requests if url.endswith("/api/ask/read")]  # it was recorded


def test_type_hover_choose_switch_off_and_take_another_word(
    opened: Open, studio: str, run: Translator, tmp_path: Path
) -> None:
    page = begin(opened, studio).page
    page.get_by_label("Text").fill("Where is the old station?")
    expect(page.locator(".output bdi")).to_have_text("Wo ist der alte Bahnhof?")
    trace = run.look("Where is the old station?", keep=["weights", "logits"])
    word(page, "rows", "Bahnhof")
    head = sharpest(trace.words())
    row = head.weights[head.rows.index("Bahnhof")]
    assert bars(page)[0] == (head.columns[int(row.argmax())], digits(float(row.max())))
    page.get_by_role("button", name=re.compile("^layer 1, head 2,")).click()
    word(page, "rows", "Bahnhof")
    row = trace.words()["decoder.1.cross"][0, 2, head.rows.index("Bahnhof")]
    assert bars(page)[0][1] == digits(float(row.max()))
    page.get_by_role("button", name="rollout through all layers").click()
    expect(page.locator(".which")).to_have_text("cross attention, rollout through all layers.")

    page.get_by_role("button", name="What matters").click()
    effect = head_effects(run, "Where is the old station?")["decoder.cross"].of("decoder.2.cross", 3)
    expect(page.get_by_role("button", name=f"layer 2, head 3, effect {effect:.1f} nats")).to_be_visible()

    page.get_by_label("Text").fill(TEXT)
    expect(page.locator(".output bdi")).to_have_text(run.translate([TEXT])[0].text)
    page.get_by_role("button", name=re.compile("^layer 2, head 3,")).click()
    page.get_by_role("button", name="Switch this head off").click()
    with gf.intervene(run) as edit:
        edit.zero("decoder.2.cross.heads", heads=3)
        without = run.translate([TEXT])[0].text
    expect(page.locator(".output bdi")).to_have_text(without)
    assert page.locator(".output mark").count() > 0
    assert run.translate([TEXT])[0].text in page.locator(".before").inner_text()
    page.get_by_role("button", name="cross, layer 2, head 3 off").click()
    expect(page.locator(".output bdi")).to_have_text(run.translate([TEXT])[0].text)

    page.locator(".rows button", has_text="Bank").first.click()  # stays pointed at
    page.locator(".readout section").nth(1).locator("li button").first.click()
    expect(page.get_by_role("button", name=re.compile("begins with"))).to_be_visible()
    steps = run.look(TEXT, keep=["logits"])["logits"][0].softmax(-1)
    ids = run.look(TEXT, keep=["logits"])["decoder.tokens"][0, 1:].tolist()
    other = next(token for token in steps[1].topk(5).indices.tolist() if token != ids[1])
    expect(page.locator(".output bdi")).to_have_text(run.look(TEXT, keep=["logits"], prefix=[ids[0], other]).output)

    again = begin(opened, link(page)).page
    expect(again.locator(".output bdi")).to_have_text(output(page))
    expect(again.get_by_role("button", name=re.compile("begins with"))).to_be_visible()
    table = list(csv.reader(share(again, "CSV", tmp_path).read_text().splitlines()))
    assert table[0][-1] == "weight"
    assert share(again, "PNG", tmp_path).read_bytes().startswith(b"\x89PNG")
    assert share(again, "SVG", tmp_path).read_text().startswith("<svg")


def test_decoding_step_by_step(opened: Open, studio: str, run: Translator, tmp_path: Path) -> None:
    page = begin(opened, studio).page
    page.get_by_role("button", name="Decoding").click()
    trace = run.look(TEXT, keep=["logits"])
    written = page.get_by_role("group", name="tokens of the output").locator("button")
    expect(written).to_have_count(len(trace["logits"][0]))
    written.nth(0).click()
    page.keyboard.press("ArrowRight")
    expect(page.locator("h2").first).to_have_text(f"Step 2 of {len(trace['logits'][0])}")

    # Sliders act on the stored log-probabilities by the rules of the library.
    scores = run.steps(TEXT, trace).scores
    for temperature, top_k, top_p in ((1.0, None, None), (2.0, None, 0.8), (0.5, 20, 0.95)):
        set_slider(page, "Temperature", temperature)
        set_slider(page, "Top k", 11 if top_k is None else 5)
        set_slider(page, "Top p", 1 if top_p is None else top_p)
        rows = list(csv.DictReader(share(page, "CSV", tmp_path).read_text().splitlines()))
        expected, tokens = Sampler(temperature, top_k, top_p).likely(scores)
        for row in rows:
            at = int(row["step"]), int(row["rank"])
            assert float(row["probability"]) == pytest.approx(float(expected[at]), rel=1e-4, abs=1e-9)
            if row["probability"] != "0":
                assert int(row["token"]) == int(tokens[at])

    # The tree, and greedy beside beam.
    (tree,) = trace.beams
    assert page.locator("[data-tree] .node").count() == len(tree.nodes)
    for fate in ("kept", "pruned", "finished"):
        assert page.locator(f"[data-tree] .node.{fate}").count() == sum(node.fate == fate for node in tree.nodes)
    expect(page.locator("tbody tr").nth(1).locator("bdi")).to_have_text(run.translate([TEXT], beam=1)[0].text)
    set_slider(page, "Beam width", 2)
    expect(page.locator(".search h2")).to_have_text("The search, with 2 beams")
    set_slider(page, "Length penalty", 0)
    found = run.look(TEXT, keep=["logits"], beam=2, length_penalty=0.0)
    expect(page.locator(".output bdi")).to_have_text(found.output)

    # Attention that is set by hand, for one step.
    for chip in ("length penalty", "beam of"):
        page.get_by_role("button", name=re.compile(chip)).click()
    written.nth(1).click()
    page.get_by_role("group", name="tokens of the source").locator("button").nth(2).click()
    with gf.intervene(run) as edit:
        edit.attend("decoder.*.cross", key=2, query=1)
        by_hand = run.look(TEXT, keep=["logits"]).output
    expect(page.get_by_role("button", name="step 2 reads “raised” alone")).to_be_visible()
    expect(page.locator(".output bdi")).to_have_text(by_hand)
    page.get_by_role("button", name="step 2 reads “raised” alone").click()

    # Outputs that are drawn.
    set_slider(page, "Temperature", 1.5)
    set_slider(page, "Top k", 11)
    set_slider(page, "Top p", 1)
    page.get_by_role("button", name="Draw an output").click()
    drawn = run.look(TEXT, keep=["logits"], sampler=Sampler(1.5, seed=1)).output
    expect(page.locator(".output bdi")).to_have_text(" ".join(drawn.split()))


def set_slider(page: Page, label: str, value: float) -> None:
    page.get_by_label(label).evaluate(
        "(each, value) => { each.value = value; each.dispatchEvent(new Event('input', {bubbles: true})); }", value
    )


def test_one_file_opens_from_disk_without_a_network(opened: Open, studio: str, tmp_path: Path) -> None:
    live = begin(opened, studio).page
    live.get_by_role("button", name="Decoding").click()
    live.wait_for_selector("[data-tree]")
    file = share(live, "Save as one file", tmp_path)
    assert file.stat().st_size < 5_000_000
    page = begin(opened, file).page
    expect(page.locator("h2").first).to_have_text(re.compile("^Step 1 of"))  # what was looked at
    page.get_by_role("group", name="tokens of the output").locator("button").nth(3).click()
    before = bars_of(page)
    set_slider(page, "Temperature", 3)
    assert bars_of(page) != before
    page.get_by_role("button", name="Read & write").click()
    word(page, "rows", "Bank")
    assert bars(page)[0][0] == "bank"
    page.get_by_role("button", name=re.compile("^layer 0, head 1,")).click()
    expect(page.locator(".which")).to_have_text("cross attention, layer 0, head 1.")
    page.get_by_role("button", name="Switch this head off").click()
    expect(page.locator(".notice.shown")).to_have_text(ONLY_RECORDED)
    expect(page.locator(".changes .before")).to_have_count(0)  # nothing is known of what it would change


def bars_of(page: Page) -> list[str]:
    return [each.inner_text() for each in page.locator(".candidates .value").all()]


def test_what_cannot_be_done_is_a_sentence_on_the_page(opened: Open, studio: str) -> None:
    found = begin(opened, studio)
    page = found.page
    page.get_by_label("Text").fill("a" * 20_001)
    expect(page.locator(".notice.shown")).to_contain_text("20,000 are read at most")
    page.get_by_label("Text").fill("<img src=x onerror=alert(1)>")
    expect(page.locator(".columns")).to_contain_text("onerror")
    expect(page.locator(".notice.shown")).to_have_count(0)
    assert page.locator("main img").count() == 0
    refusals = ("400", "422")  # the browser tells of them, and of nothing else
    assert all(any(status in said for status in refusals) for said in found.complaints)
    found.complaints.clear()


def test_a_browser_that_is_stuck_holds_nothing_up(opened: Open, studio: str) -> None:
    host, port = studio.removeprefix("http://").strip("/").split(":")
    headers = {"Host": f"{host}:{port}", "Content-Type": "application/json", "Content-Length": "999"}
    lines = ["POST /api/ask/read HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", "{"]
    stuck = [socket.create_connection((host, int(port))) for _ in range(30)]
    for each in stuck:
        each.sendall("\r\n".join(lines).encode())  # and no more
    page = begin(opened, studio).page
    page.get_by_label("Text").fill("Good morning.")
    expect(page.locator(".output bdi")).to_have_text("Guten Morgen.")
    for each in stuck:
        each.close()


def test_other_runs_and_other_scripts(opened: Open, studio: str) -> None:
    page = begin(opened, studio).page
    page.get_by_label("run").select_option("copy")
    expect(page.locator(".output bdi")).not_to_be_empty()
    assert re.fullmatch(r"[a-h ]+", page.get_by_label("Text").input_value())
    assert output(page) == page.get_by_label("Text").input_value()  # it has learned to copy
    page.get_by_label("run").select_option("en-de")
    page.get_by_label("Text").fill("הבנק העלה את הריבית")
    expect(page.get_by_label("Text")).to_have_attribute("dir", "rtl")
    page.get_by_label("Text").fill("銀行は金利を引き上げた。")
    expect(page.get_by_label("Text")).to_have_attribute("dir", "ltr")
    expect(page.locator(".output bdi")).not_to_be_empty()


FRAMES = """async () => {
  const map = document.querySelector("[role=application]"), box = map.getBoundingClientRect(), times = [];
  for (let frame = 0, last = performance.now(); frame < 60; frame++) {
    const at = {clientX: box.left + (frame * 7) % box.width, clientY: box.top + (frame * 5) % 400};
    map.dispatchEvent(new PointerEvent("pointermove", {...at, bubbles: true, pointerType: "mouse"}));
    const now = await new Promise(requestAnimationFrame);
    times.push(now - last);
    last = now;
  }
  return times.sort((a, b) => a - b)[30];
}"""


def test_512_tokens_are_smooth_and_2000_have_a_window(opened: Open, studio: str) -> None:
    page = begin(opened, studio, scale=1).page
    page.get_by_label("run").select_option("long")
    expect(page.locator(".output, .words").first).to_be_visible()
    letters = "abcdefgh"
    page.get_by_label("Text").fill(" ".join(letters[place % 8] for place in range(512)))
    page.get_by_role("button", name="Encoder self").click()
    map_of_heads = page.locator("[role=application] canvas")
    expect(map_of_heads).to_have_attribute("width", "512")
    assert any(page.evaluate(FRAMES) < 1000 / 55 for _ in range(TRIES))  # the median of 60 frames
    page.get_by_label("Text").fill(" ".join(letters[place % 8] for place in range(2000)))
    expect(page.locator(".notice", has_text="too many to show at once")).to_contain_text("these are 1 to 512")
    page.get_by_role("button", name="later").click()
    expect(page.locator(".notice", has_text="too many to show at once")).to_contain_text("these are 513 to 1,024")


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (820, 1000), (390, 844)])
def test_it_fits_and_has_contrast(opened: Open, studio: str, width: int, height: int) -> None:
    for scheme in ("light", "dark"):
        page = begin(opened, studio, width=width, height=height, scheme=scheme).page
        for view in ("Read & write", "Decoding"):
            page.get_by_role("button", name=view).click()
            page.wait_for_selector(".words" if view != "Decoding" else "[data-tree]")
            assert fits(page, width)
            assert page.evaluate(CONTRAST) >= 4.5
