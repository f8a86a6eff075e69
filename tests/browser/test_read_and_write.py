"""The interactive view in one file, in a browser without a network: what it shows is what the trace holds."""

from __future__ import annotations

import base64
import gzip
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from glassformer.looking.packing import pack
from glassformer.looking.plots.choosing import name
from glassformer.looking.sharpest import sharpest
from glassformer.looking.trace import Trace
from glassformer.scripts import script

from .conftest import Open
from .serving import fits

SIZES = ((1280, 800), (390, 844))

# A map has its size when its frame is drawn, and a page may scroll to something.
STAYS = """async place => {
  const now = () => new Promise(requestAnimationFrame).then(() => {
    const {x, y, width, height} = place.getBoundingClientRect();
    return [x, y, width, height];
  });
  for (let before = await now(); ;) {
    await now();
    const found = await now();
    if (found.every((each, at) => each === before[at])) return found;
    before = found;
  }
}"""


def digits(value: float) -> str:
    """A weight as the page writes it."""
    return f"{value:.2f}".removeprefix("0") if value < 0.995 else "1.0"


def word(page: Page, side: str, text: str) -> None:
    """Point at a word."""
    page.locator(f".{side} button", has_text=text).first.hover()


def bars(page: Page, number: int = 0) -> list[tuple[str, str]]:
    """The texts and numbers of a list beside the picture."""
    items = page.locator(".readout section").nth(number).locator("li").all()
    return [(each.locator("bdi").inner_text(), each.locator(".value").inner_text()) for each in items]


def box(place: Locator) -> tuple[float, float, float, float]:
    """Where something is, once it is laid out and stays there: left, top, width and height."""
    place.wait_for()
    x, y, width, height = place.evaluate(STAYS)
    return x, y, width, height


def heading(page: Page) -> str:
    """What the first list beside the picture is of."""
    return " ".join(page.locator(".readout h3").first.inner_text().split())


def test_a_pointed_word_shows_what_it_read_in_the_numbers_of_the_trace(opened: Open, file: Path, trace: Trace) -> None:
    page, words = opened(file).page, trace.words()
    head = sharpest(words)
    for row in (1, 4):  # Bank, Zinssätze
        word(page, "rows", head.rows[row])
        best = [(head.columns[at], float(head.weights[row, at])) for at in head.weights[row].argsort(descending=True)]
        assert bars(page) == [(text, digits(weight)) for text, weight in best[:5] if weight >= 0.005]
        over = [each.inner_text() for each in page.locator(".columns .weight").all()]
        assert over == [digits(float(w)) if w >= 0.005 else "" for w in head.weights[row]]
    word(page, "columns", "interest")  # who reads it
    column = head.weights[:, head.columns.index("interest")]
    assert bars(page)[0] == (head.rows[int(column.argmax())], digits(float(column.max())))


def test_candidates_are_those_of_the_logits(opened: Open, file: Path, trace: Trace) -> None:
    page = opened(file).page
    word(page, "rows", "Bank")
    likely, names = trace["logits"][0, 1].softmax(dim=-1), trace.axes("logits")["vocabulary"]
    assert bars(page, 1)[:5] == [(name(names[at]), digits(float(likely[at]))) for at in likely.topk(5).indices]
    assert page.locator(".readout li.marked bdi").inner_text() == "·Bank"


def test_heads_layers_kinds_and_pieces_can_be_chosen(opened: Open, file: Path, trace: Trace) -> None:
    page = opened(file).page
    page.get_by_role("button", name="layer 1, head 2").click()
    word(page, "rows", "Bank")
    row = trace.words()["decoder.1.cross"][0, 2, 1]
    assert bars(page)[0][1] == digits(float(row.max()))
    page.get_by_role("button", name="layer 1, mean of heads").click()
    word(page, "rows", "Bank")
    assert bars(page)[0][1] == digits(float(trace.words()["decoder.1.cross"][0, :, 1].mean(dim=0).max()))
    page.get_by_role("button", name="Pieces").click()
    page.get_by_role("button", name="Decoder self").click()
    assert page.locator(".rows button bdi").all_inner_texts()[:4] == ["start", "Die", "·Bank", "·z"]
    page.get_by_role("button", name="mean of all heads").click()
    word(page, "rows", "Die")
    mean = trace.attention("decoder.self")[:, 0, :, 1].mean(dim=(0, 1))
    assert bars(page)[0][1] == digits(float(mean.max()))
    assert page.locator(".which").inner_text() == "Decoder self-attention, mean of all heads."


def test_the_matrix_names_the_weight_that_is_pointed_at(opened: Open, file: Path, trace: Trace) -> None:
    page, head = opened(file).page, sharpest(trace.words())
    page.get_by_role("button", name="Matrix").click()
    canvas = page.locator("[role=application] canvas")
    rows, columns = head.weights.shape
    _, _, width, height = box(canvas)
    canvas.hover(position={"x": width * 4.5 / columns, "y": height * 4.5 / rows})
    assert page.locator(".tip").inner_text() == digits(float(head.weights[4, 4]))
    page.locator("[role=application]").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator(".tip").inner_text() == digits(float(head.weights[4, 5]))
    page.keyboard.press("ArrowUp")
    assert page.locator(".tip").inner_text() == digits(float(head.weights[3, 5]))
    shown = canvas.evaluate("each => [each.width, each.height]")
    assert shown == [columns, rows]


def test_arrows_move_through_words_and_the_focus_is_seen(opened: Open, file: Path) -> None:
    page = opened(file).page
    page.locator(".rows button[tabindex='0']").focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    assert heading(page) == "To write Bank it read"
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    page.keyboard.press("ArrowUp")
    assert heading(page).endswith("is read by")
    page.locator(".cell[aria-pressed='true']").focus()
    before = page.locator(".which").inner_text()
    page.keyboard.press("ArrowLeft")
    assert page.locator(".which").inner_text() != before


def test_right_to_left_texts_run_from_right_to_left(opened: Open, trace: Trace, tmp_path: Path) -> None:
    letters = ["הבנק", "▁העלה", "▁את", "▁שיעורי", "▁הרי", "בית", "▁שלו", "."]
    about = replace(trace.about, tokens={**trace.about.tokens, "encoder": [letters]})
    page = opened(trace.described(about).save_page(tmp_path / "x.html")).page
    expect(page.locator(".columns button")).not_to_have_count(0)
    read, written = ([box(each)[0] for each in page.locator(f".{side} button").all()] for side in ("columns", "rows"))
    assert read == sorted(read, reverse=True)
    assert written == sorted(written)


def test_text_is_never_html(opened: Open, trace: Trace, tmp_path: Path) -> None:
    bad = "<img src=x onerror=alert(1)></script><script>alert(2)</script>"
    tokens = {**trace.about.tokens, "encoder": [[bad[:17], *trace.about.tokens["encoder"][0][1:]]]}
    about = replace(trace.about, input=bad, output=bad, tokens=tokens)
    page = opened(trace.described(about).save_page(tmp_path / "x.html")).page
    assert page.locator(".columns bdi").first.inner_text() == bad[:17]
    assert page.locator("h1").inner_text() == bad
    assert page.locator("img").count() == 0


@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_and_has_contrast(opened: Open, file: Path, width: int, height: int, scheme: str) -> None:
    page = opened(file, width, height, scheme).page
    for form in ("Lines", "Matrix"):
        page.get_by_role("button", name=form).click()
        assert fits(page, width)
    assert page.evaluate(CONTRAST) >= 4.5


# The least contrast of the colours of texts with what is behind them, by the formula of WCAG 2.
CONTRAST = """() => {
  const pen = Object.assign(document.createElement("canvas"), {width: 1, height: 1})
    .getContext("2d", {willReadFrequently: true});
  const over = colours => {
    colours.forEach(each => { pen.fillStyle = each; pen.fillRect(0, 0, 1, 1); });
    return [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const luminance = colour => {
    const [r, g, b] = colour.map(each => each / 255)
      .map(each => each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const view = document.querySelector("[data-view]");
  const ratios = [...view.querySelectorAll("h2, h3, p, bdi, .value, .label, .legend, button, th, td")].map(each => {
    const behind = [];
    for (let at = each; at; at = at.parentElement) behind.unshift(getComputedStyle(at).backgroundColor);
    const [paper, ink] = [over(behind), over([...behind, getComputedStyle(each).color])].map(luminance);
    return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
  });
  return Math.min(...ratios);
}"""


def test_the_widget_is_drawn_by_a_host_of_anywidgets_and_taken_away_again(opened: Open, trace: Trace) -> None:
    """The host does what anywidget's does: imports the module, and calls `render` with a model and an element."""
    page = opened(None).page
    page.set_content("<body data-jp-theme-light='false'><div id='host'></div></body>")
    packed = base64.b64encode(pack(trace)).decode()
    page.evaluate(
        """async ([code, packed]) => {
          const module = await import(URL.createObjectURL(new Blob([code], {type: "text/javascript"})));
          const bytes = Uint8Array.from(atob(packed), letter => letter.charCodeAt(0));
          const model = {get: key => ({packed: new DataView(bytes.buffer)})[key]};
          window.away = await module.default.render({model, el: document.querySelector("#host")});
        }""",
        [script("widget"), packed],
    )
    word(page, "rows", "Bank")
    assert bars(page)[0][0] == "bank"
    assert page.locator("[data-view]").evaluate("each => getComputedStyle(each).colorScheme") == "dark"
    page.evaluate("window.away()")
    assert page.locator("#host").inner_html().strip("<!->") == ""


def test_the_scripts_are_small_and_so_is_the_page(file: Path) -> None:
    for each in ("page", "widget"):
        assert len(gzip.compress((script(each) or "").encode())) <= 200_000
    studio = (script("studio") or "") + (script("studio", "css") or "")
    assert len(gzip.compress(studio.encode())) <= 200_000
    assert file.stat().st_size <= 500_000
