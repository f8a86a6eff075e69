"""The face of every task and family in a browser: what the page says is what the run says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

import glassformer as gf
import labels
from every_task import MADE, EveryTask
from glassformer.decoding import Sampler
from glassformer.looking import analyses
from glassformer.looking.cells import cell_points
from glassformer.looking.plots.choosing import name as name_of
from glassformer.looking.points import points

from .serving import fits, link, served, visited
from .test_read_and_write import box, digits

DROP = """async ([name, bytes]) => {
  const moved = new DataTransfer();
  moved.items.add(new File([new Uint8Array(bytes)], name, {type: name.endsWith("png") ? "image/png" : "text/plain"}));
  window.dispatchEvent(new DragEvent("drop", {dataTransfer: moved, cancelable: true}));
}"""


@pytest.fixture(scope="module")
def studio(every_task: EveryTask) -> Iterator[str]:
    with served([every_task.path(name) for name in MADE]) as url:
        yield url


def at(studio: str, run: str, text: str = "", **more: str) -> str:
    given = {"run": run, "text": text, **more}
    return f"{studio}#{'&'.join(f'{key}={quote(value)}' for key, value in given.items() if value)}"


def bars(page: Page, place: str) -> list[tuple[str, str]]:
    items = page.locator(f"{place} li").all()
    return [(each.locator("bdi").inner_text(), each.locator(".value").inner_text()) for each in items]


def test_labels(browser: Browser, studio: str, every_task: EveryTask) -> None:
    run: Any = every_task("classification")
    with visited(browser, at(studio, "classification", "the old hammer")) as page:
        found = run.classify(["the old hammer"])[0]
        expect(page.locator(".reply .label bdi")).to_have_text(found.label)
        assert bars(page, ".reply") == [(name, digits(value)) for name, value in found.probabilities.items()]
        expect(page.locator(".readout h3").first).to_contain_text("<start> reads")
        page.locator("#text").fill("a plum")
        expect(page.locator(".reply .label bdi")).to_have_text(run.classify(["a plum"])[0].label)
        page.get_by_role("group", name="examples to try").get_by_role("button").first.click()
        expect(page.locator("#text")).not_to_have_value("a plum")
    run = every_task("two texts")
    with visited(browser, at(studio, "two texts", "my plum\tmy saw")) as page:
        expect(page.locator(".reply .label bdi")).to_have_text(run.classify([("my plum", "my saw")])[0].label)
        page.get_by_label("second text").fill("my\tpear")  # a tab is no longer one
        expect(page.locator(".columns")).to_contain_text("pear")
        assert bars(page, ".reply")[0][1] == digits(run.classify([("my plum", "my pear")])[0].probability)


def test_tags_gaps_and_answers(browser: Browser, studio: str, every_task: EveryTask) -> None:
    text = "the can likes a fish"
    tags: Any = every_task("tagging")
    with visited(browser, at(studio, "tagging", text)) as page:
        expect(page.locator(".tag")).to_have_text(tags.tag([text])[0].tags)
        page.locator("[data-part='1']").focus()
        page.keyboard.press("ArrowRight")
        assert "likes" in page.locator(".likely h3").inner_text()
        assert bars(page, ".likely")[0] == ("VERB", digits(tags.tag([text])[0].probabilities[2]))
    text = "the [MASK] cat says [MASK] ."
    masked: Any = every_task("masked")
    with visited(browser, at(studio, "masked", text)) as page:
        gaps = masked.fill([text])[0].gaps
        expect(page.locator(".parts .marked")).to_have_text([gap[0].word for gap in gaps])
        page.locator(".parts .marked").nth(1).hover()
        assert bars(page, ".likely") == [(each.word, digits(each.probability)) for each in gaps[1]]
    spans: Any = every_task("spans")
    text = "the <extra_id_0> says <extra_id_1> ."
    with visited(browser, at(studio, "spans", text)) as page:
        expect(page.locator(".parts mark")).to_have_count(2)
        assert " ".join(page.locator(".parts").inner_text().split()) == " ".join(spans.restore([text])[0].split())
    answers: Any = every_task("answering")
    question, context = "which number", "the old green house has nine windows"
    with visited(browser, at(studio, "answering", f"{question}\t{context}")) as page:
        expect(page.get_by_label("context")).to_have_value(context)
        expect(page.locator(".parts .marked")).to_have_text(answers.answer([(question, context)])[0].text)
        assert page.locator(".parts").inner_text() == context


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_language_models_go_on(browser: Browser, studio: str, every_task: EveryTask, name: str) -> None:
    run: Any = every_task(name)
    with visited(browser, at(studio, name, "the old cat")) as page:
        written = run.generate(["the old cat"], length=20)[0].text.removeprefix("the old cat")
        expect(page.locator(".parts mark")).to_have_text(" ".join(written.split()))
        page.get_by_label("tokens to write").fill("2")
        shorter = run.generate(["the old cat"], length=2)[0]
        expect(page.locator(".parts mark")).to_have_text(shorter.text.removeprefix("the old cat").strip())
        likely = run.look("the old cat", length=2)["logits"][0, 3].softmax(dim=-1)  # after “cat”
        page.locator(".rows button", has_text="cat").hover()
        assert bars(page, ".readout section:nth-child(2)")[0][1] == digits(float(likely.max()))


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_language_models_take_another_word(
    browser: Browser, studio: str, every_task: EveryTask, name: str, tmp_path: Path
) -> None:
    run: Any = every_task(name)
    text = "the old cat"
    with visited(browser, at(studio, name, text, view="decode")) as page:
        trace = run.look(text, length=20)
        scores = run.steps(text, trace).scores
        tokens = page.get_by_role("group", name="tokens of the output").locator("button")
        expect(tokens).to_have_count(len(scores))
        expect(page.get_by_role("group", name="tokens of the source").locator("button")).to_have_count(
            len(run.read(text))
        )
        page.get_by_label("Temperature").fill("2")
        likely, ids = Sampler(2.0).likely(scores)
        shown = page.locator(".candidates .value").first.inner_text()
        assert float(shown) == pytest.approx(float(likely[0, 0]), abs=0.006)
        button = page.locator(".candidates li button").first  # what is written is none, nor is a special token
        spelled = [name_of(each) for each in run.target.vocabulary]
        other = next(each for each in ids[0].tolist() if spelled[each] == button.inner_text())
        button.click()
        forced = run.look(text, length=20, prefix=[other])
        expect(page.locator(".output bdi")).to_have_text(" ".join(forced.output.split()))
        expect(page.locator(".chip", has_text="begins with")).to_be_visible()
        page.get_by_role("button", name="Read & write").click()
        expect(page.locator(".parts mark")).to_have_text(" ".join(forced.output.split()))
        page.get_by_role("button", name=re.compile("begins with")).click()
        expect(page.locator(".parts mark")).to_have_text(" ".join(trace.output.split()))
        page.get_by_role("button", name="Decoding").click()
        page.get_by_role("button", name="Draw an output").click()
        drawn = run.look(text, length=20, sampler=Sampler(2.0, seed=1))
        expect(page.locator(".output bdi")).to_have_text(" ".join(drawn.output.split()))
        page.get_by_role("button", name="drawn, seed 1").click()
        page.get_by_role("group", name="tokens of the source").locator("button").nth(1).click()
        expect(page.get_by_role("button", name=re.compile("step 1 reads “.+” alone"))).to_be_visible()
        with gf.intervene(run) as edit:
            edit.attend("decoder.*.self", key=1, query=len(run.read(text)) - 1)
            by_hand = run.look(text, length=20).output
        expect(page.locator(".output bdi")).to_have_text(" ".join(by_hand.split()))
        page.get_by_role("button", name="Share").click()
        with page.expect_download() as taken:
            page.get_by_role("menuitem", name="Save as one file").click()
        taken.value.save_as(tmp_path / "saved.html")
    with visited(browser, (tmp_path / "saved.html").as_uri()) as page:
        expect(page.locator(".output bdi")).to_have_text(" ".join(by_hand.split()))
        expect(page.locator(".candidates li")).not_to_have_count(0)


def test_each_word_of_a_caption_looks_at_patches(
    browser: Browser, studio: str, every_task: EveryTask, tmp_path: Path
) -> None:
    run: Any = every_task("captioning")
    file = tmp_path / "drawn.png"
    labels.drawn("lying", 1000).save(file)
    trace = run.look(file)
    with visited(browser, at(studio, "captioning")) as page:
        page.get_by_label("image file").set_input_files(file)
        words = page.get_by_role("group", name="words of the caption").get_by_role("button")
        rows = [name_of(each) for each in trace.axes("decoder.0.cross")["token"]]
        expect(words).to_have_text(rows)
        words.nth(1).click()
        weights = trace["decoder.0.cross"][0].mean(dim=0)[1, 1:]  # (N)
        expect(page.locator(".numbers strong")).to_have_text(digits(float(weights.max())))
        page.get_by_role("button", name="Decoding").click()
        expect(page.get_by_role("group", name="tokens of the output").locator("button")).to_have_text(rows)


def test_an_image_is_dropped_and_its_patches_look(
    browser: Browser, studio: str, every_task: EveryTask, tmp_path: Path
) -> None:
    run: Any = every_task("images")
    files = {label: tmp_path / f"{label}.png" for label in ("lying", "standing")}
    for label, file in files.items():
        labels.drawn(label, 1000).save(file)
    with visited(browser, at(studio, "images")) as page:
        page.get_by_label("image file").set_input_files(files["lying"])
        expect(page.locator(".reply .label bdi")).to_have_text(run.classify([files["lying"]])[0].label)
        page.evaluate(DROP, ["standing.png", list(files["standing"].read_bytes())])
        expect(page.locator(".reply .label bdi")).to_have_text(run.classify([files["standing"]])[0].label)
        weights = run.look(files["standing"])["encoder.0.self"][0].mean(dim=0)  # (T, T)
        panel = page.locator(".panel").nth(1)
        size = box(panel)[2]
        panel.hover(position={"x": size * 2.5 / 4, "y": size * 1.5 / 4})  # row 2, column 3
        expect(page.locator(".numbers strong")).to_have_text(digits(float(weights[0, 7])))
        panel.click(position={"x": size * 2.5 / 4, "y": size * 1.5 / 4})
        expect(page.locator(".numbers")).to_contain_text("of what patch 2,3 reads")
        page.get_by_role("application").focus()
        page.keyboard.press("ArrowRight")
        expect(page.locator(".numbers strong")).to_have_text(digits(float(weights[7, 8])))
        page.evaluate(DROP, ["secret.txt", [1, 2, 3]])
        expect(page.locator(".notice")).to_have_text("secret.txt is no PNG and no JPEG.")
        dropped = link(page)
    with visited(browser, dropped) as page:  # what the model saw is in the link
        expect(page.locator(".reply .label bdi")).to_have_text("standing")
        expect(page.locator(".outline.looks")).to_have_count(2)


def test_cells_of_a_model_without_attention(browser: Browser, studio: str, every_task: EveryTask) -> None:
    run: Any = every_task("blind")
    trace = run.look("a b c", keep=cell_points(points(run)))
    with visited(browser, at(studio, "blind", "a b c")) as page:
        for stack in ("encoder", "decoder"):
            page.get_by_role("button", name=f"{stack} 0").click()
            gates = analyses.gates(trace, stack=stack)
            shown = [[cell.inner_text() for cell in row.locator("td").all()] for row in page.locator("tbody tr").all()]
            np.testing.assert_allclose(np.array(shown, float), gates.mean.numpy(), atol=0.01)
        kept = analyses.memory(trace, stack="decoder").kept
        canvas = page.locator("[role=application] canvas")
        *_, width, height = box(canvas)
        canvas.hover(position={"x": width * 0.5 / len(kept), "y": height * 1.5 / len(kept)})
        assert page.locator(".tip").inner_text().strip() == digits(float(kept[1, 0]))


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (820, "dark")])
def test_every_face_fits(browser: Browser, studio: str, width: int, scheme: str) -> None:
    with visited(browser, studio, width, 844, scheme) as page:
        for name in MADE:
            page.locator("header select").select_option(name)
            page.locator("main[aria-busy='false'] h2").first.wait_for()
            assert fits(page, width), name
            assert page.locator(".notice.shown").count() == 0, name


@pytest.mark.parametrize("name", ["images", "captioning", "series", "forecasting", "gpt2", "blind", "two texts"])
def test_every_view_of_a_face_is_shown_and_all_is_saved(
    browser: Browser, studio: str, name: str, tmp_path: Path
) -> None:
    with visited(browser, at(studio, name), 820) as page:
        page.locator("main[aria-busy='false'] h2").first.wait_for()
        tabs = page.get_by_role("navigation").get_by_role("button")
        assert {"Inside", "Positions & embeddings"} <= set(tabs.all_inner_texts())
        for tab in tabs.all():
            if tab.inner_text() == "Compare":  # the other run reads something else, which is refused
                continue
            tab.click()
            page.locator("main > *").first.wait_for()
            page.locator("main[aria-busy='false']").wait_for()
            assert page.locator(".notice.shown").all_inner_texts() == [], tab.inner_text()
            assert fits(page, 820), tab.inner_text()
        tabs.nth(0).click()
        page.get_by_role("button", name="Share").click()
        with page.expect_download() as taken:
            page.get_by_role("menuitem", name="Save as one file").click()
        taken.value.save_as(tmp_path / "saved.html")
    with visited(browser, (tmp_path / "saved.html").as_uri(), 820) as page:
        page.locator("main[aria-busy='false'] h2").first.wait_for()
        page.get_by_role("button", name="Inside").click()
        expect(page.locator("[data-view=inside] h3").first).to_be_visible()
        assert page.locator(".notice.shown").count() == 0


def test_another_image_is_chosen_from_the_examples(browser: Browser, studio: str) -> None:
    with visited(browser, at(studio, "images", view="layers")) as page:
        expect(page.get_by_role("heading", name="Which patches speak for")).to_be_visible()
        expect(page.locator(".patches .word")).to_have_count(16)
        page.get_by_role("group", name="second image").get_by_role("button").first.click()
        page.get_by_role("button", name="Patch", exact=True).click()
        expect(page.get_by_text("Log-probability with the first image")).to_be_visible()
