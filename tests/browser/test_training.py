"""Training and Compare in a browser: curves that grow while a run is trained, watched attention, two runs beside."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from playwright.sync_api import Browser, expect

from every_task import EveryTask
from glassformer.looking.comparing import compare
from glassformer.looking.sentences import sentence_of
from glassformer.looking.sharpest import sharpest
from glassformer.recipe import make_recipe
from glassformer.runs import train
from glassformer.runs.looks import read_looks
from glassformer.runs.metrics import METRICS, read_metrics
from tiny import IDLE, table

from .serving import fits, link, served, visited
from .test_faces import at

TEXTS = ["a b c", "d e"]


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was looked at while it was trained, and seems to be trained still."""
    folder = tmp_path_factory.mktemp("watched") / "watched"
    train(make_recipe({**table(IDLE, {"train": {"steps": 6}}), "look": {"texts": TEXTS, "every": 3}}), folder)
    (folder / ".lock").touch()
    return folder


@pytest.fixture(scope="module")
def studio(watched: Path, every_task: EveryTask) -> Iterator[str]:
    with served([watched, every_task.path("copy"), every_task.path("bart")]) as url:
        yield url


def legend(line: dict[str, Any], key: str) -> str:
    """A measurement as the page writes it."""
    return f"{float(f'{line[key]:.3g}'):g}"


def test_curves_grow_while_a_run_is_trained(browser: Browser, studio: str, watched: Path, tmp_path: Path) -> None:
    with visited(browser, at(studio, "watched", view="training")) as page:
        chart = page.locator("figure", has_text="Loss").first
        last = [record for record in read_metrics(watched) if "valid_loss" in record][-1]
        expect(chart.locator("li", has_text="validation").locator("strong")).to_have_text(legend(last, "valid_loss"))
        expect(page.locator(".doing")).to_contain_text(re.compile("step 6 of 6, training now"))
        with (watched / METRICS).open("a") as file:
            file.write(json.dumps({**last, "step": 8, "valid_loss": 0.125}) + "\n")
        expect(chart.locator("li", has_text="validation").locator("strong")).to_have_text("0.125")
        expect(page.locator(".doing")).to_contain_text("step 8")
        page.get_by_role("checkbox", name="copy").check()
        expect(chart.locator("li", has_text="copy")).to_have_count(2)
        page.get_by_role("button", name="Logarithmic").click()
        page.get_by_label("score").select_option("valid_bleu")
        expect(page.locator("figure", has_text="BLEU").locator("canvas")).to_be_visible()
        chart.get_by_role("application").focus()
        page.keyboard.press("Home")
        expect(chart.locator("li", has_text="validation").locator("strong").first).not_to_have_text("0.125")
        page.get_by_role("button", name="Share").click()
        with page.expect_download() as taken:
            page.get_by_role("menuitem", name="CSV").click()
        rows = Path(taken.value.path()).read_text(encoding="utf-8").splitlines()
        assert rows[0] == "run,what,step,value"
        assert "watched,valid_loss,8,0.125" in rows
        page.get_by_role("button", name="Share").click()
        with page.expect_download() as taken:
            page.get_by_role("menuitem", name="Save as one file").click()
        shutil.copy(taken.value.path(), tmp_path / "saved.html")
    with visited(browser, (tmp_path / "saved.html").as_uri()) as page:
        expect(page.locator("figure li", has_text="watched").first).to_be_visible()
        page.get_by_label("step of the training").first.fill("0")
        expect(page.locator("output").first).to_have_text("step 0")


def test_the_slider_goes_through_the_steps(browser: Browser, studio: str, watched: Path) -> None:
    looks = dict(read_looks(watched))
    with visited(browser, at(studio, "watched", view="training")) as page:
        words = sentence_of(looks[6], 0).words()
        best = sharpest(words)
        expect(page.locator("output").first).to_have_text("step 6")
        expect(page.locator(".rows bdi")).to_have_text(best.rows)
        page.get_by_label("step of the training").focus()
        page.keyboard.press("ArrowLeft")
        expect(page.locator("output").first).to_have_text("step 3")
        expect(page.locator(".rows bdi")).to_have_text(sharpest(sentence_of(looks[3], 0).words()).rows)
        page.get_by_label("text", exact=True).select_option("1")
        expect(page.locator(".columns bdi")).to_have_text(["d", "e"])
        chosen = page.locator(".rows button[aria-pressed=true]")
        expect(chosen).to_have_count(1)  # whichever word is the first to be shown
        chosen.click()
        expect(chosen).to_have_count(0)
        url = link(page)
        page.get_by_role("button", name="Play").click()
        expect(page.locator("output").first).to_have_text("step 6")
    with visited(browser, url) as page:
        expect(page.locator(".columns bdi")).to_have_text(["d", "e"])
        expect(page.locator(".rows button[aria-pressed=true]")).to_have_count(0)
        page.locator(".rows button").first.click()
        url = link(page)
    with visited(browser, url) as page:
        expect(page.locator(".rows button").first).to_have_attribute("aria-pressed", "true")


def test_a_head_that_is_followed_through_a_training_is_that_of_the_other_views(browser: Browser, studio: str) -> None:
    with visited(browser, at(studio, "watched", view="training")) as page:
        page.get_by_role("button", name="layer 0, head 1,").click()
        page.get_by_label("step of the training").press("ArrowLeft")
        expect(page.locator("output").first).to_have_text("step 3")
        expect(page.locator(".which")).to_have_text("cross attention, layer 0, head 1.")
        page.get_by_role("button", name="Read & write").click()
        expect(page.get_by_label("Text")).to_be_visible()
        expect(page.locator(".which")).to_have_text("cross attention, layer 0, head 1.")


def test_two_runs_side_by_side(browser: Browser, studio: str, every_task: EveryTask) -> None:
    found = compare(every_task("copy"), every_task("bart"), "a b c d")
    options = json.dumps({"compare": {"other": "bart"}})
    with visited(browser, at(studio, "copy", "a b c d", view="compare", options=options), 390, 844, "dark") as page:
        expect(page.locator(".output p")).to_have_text([" ".join(text.split()) for text in found.outputs])
        cells = [cell.inner_text() for cell in page.locator("section table td").all()]
        values = [value for score in found.scores for value in (score.first, score.second)]
        assert cells == [f"{value:.2f}".replace("-", "−") for value in values]
        assert found.diverges is not None
        expect(page.locator(".streams .first .point")).to_have_text(found.diverges.point.replace(".", " "))
        assert page.locator(".streams li").count() == len(found.streams)
        pairs = [pair for pair in found.heads if pair.kind == "decoder.cross"]
        shown = [float(each.inner_text()) for each in page.locator(".grid .row button").all()]
        assert shown == pytest.approx([pair.distance for pair in pairs], abs=0.006)
        page.locator("[data-head='0 1']").click()
        expect(page.locator(".heads h3")).to_have_text(["A, layer 0, head 1", "B, layer 0, head 1"])
        page.get_by_role("button", name="The nearest head of B").click()
        layer, head = pairs[1].nearest
        expect(page.locator(".heads h3").nth(1)).to_have_text(f"B, layer {layer}, head {head}")
        assert fits(page, 390)
        page.get_by_label("run to compare with").select_option("watched")
        expect(page.locator(".streams .first .point")).to_be_visible()
    with served([every_task.path("copy")]) as alone, visited(browser, at(alone, "copy", view="compare")) as page:
        expect(page.locator(".hint").first).to_contain_text("There is one run only.")


def test_a_link_and_a_file_name_the_run_that_was_compared_with(
    browser: Browser, studio: str, every_task: EveryTask, tmp_path: Path
) -> None:
    with visited(browser, at(studio, "copy", "a b c d", view="compare")) as page:  # nobody has chosen the other one
        other = page.get_by_label("run to compare with").input_value()
        expect(page.locator(".output p")).to_have_count(2)
        assert json.loads(parse_qs(link(page).partition("#")[2])["options"][0])["compare"] == {"other": other}
        page.get_by_role("button", name="Share").click()
        with page.expect_download() as taken:
            page.get_by_role("menuitem", name="Save as one file").click()
        taken.value.save_as(tmp_path / "saved.html")
    with visited(browser, (tmp_path / "saved.html").as_uri()) as page:
        expect(page.get_by_label("run to compare with")).to_have_value(other)
        expect(page.locator(".output p")).to_have_count(2)
