"""The layers of a model on a page: what the analyses of the library say, and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

import glassformer as gf
from glassformer.looking.patching import preference
from glassformer.looking.plots.choosing import name
from glassformer.studio.views import passes
from glassformer.tasks.translation import Translator

from .test_views import ask

TEXT, OTHER = "a b c", "a c c"


def test_the_lens_says_what_the_analysis_says(client: TestClient, trained: Translator) -> None:
    said = ask(client, "layers", "copy", text=TEXT).header
    trace = gf.analyses.forced_trace(trained, TEXT, said["output"], keep=["before", "after", "logits"])
    lens = gf.analyses.logit_lens(trained, trace)
    assert [layer["point"] for layer in said["layers"]] == lens.points
    best = [[row[0]["text"].replace("·", "▁") for row in layer["best"]] for layer in said["layers"]]
    assert best == lens.texts()
    chosen = [each["id"] for each in said["chosen"]]
    assert said["layers"][1]["ranks"] == [int(lens.rank(token)[1, place]) for place, token in enumerate(chosen)]
    assert said["places"][0] == "start"
    assert said["without"] == {}


@pytest.mark.parametrize("heads", [False, True])
def test_what_the_parts_add_is_the_score(client: TestClient, heads: bool) -> None:
    lens = ask(client, "layers", "copy", text=TEXT).header
    word, other = lens["candidates"][1][:2]
    one = ask(client, "layers.parts", "copy", text=TEXT, position=1, heads=heads).header
    assert one["token"] == lens["chosen"][1]["text"]
    assert sum(one["values"]) == pytest.approx(one["logit"], abs=1e-3)
    both = ask(
        client, "layers.parts", "copy", text=TEXT, position=1, token=word["id"], against=other["id"], heads=heads
    )
    ratio = np.exp(both.header["logit"])
    assert ratio == pytest.approx(word["probability"] / other["probability"], rel=0.05)
    assert any(part.endswith("cross.3") for part in one["parts"]) == heads


@pytest.mark.parametrize("method", ["occlusion", "input_x_gradient", "integrated_gradients"])
def test_words_speak_for_a_word_as_the_analysis_says(client: TestClient, trained: Translator, method: str) -> None:
    more = {"steps": 16} if method == "integrated_gradients" else {}
    said = ask(client, "layers.source", "copy", text=TEXT, position=1, method=method, **more).header
    found = getattr(gf.analyses, method)(trained, TEXT, position=1, **more)
    pieces = said["readings"]["pieces"]
    seen = len(pieces["texts"])
    assert pieces["stacks"] == ["encoder"] * 3 + ["decoder"] * 2  # what is written later cannot be seen
    np.testing.assert_allclose(pieces["values"], found.values[0, :seen], atol=1e-4)
    assert float(found.values[0, seen:].abs().max()) < 1e-6
    assert said["score"] == pytest.approx(float(found.outputs[0]), abs=1e-4)


@pytest.mark.parametrize("over", ["positions", "heads"])
def test_patching_brings_back_what_the_library_says(client: TestClient, trained: Translator, over: Any) -> None:
    found = ask(client, "layers.patching", "copy", text=TEXT, other=OTHER, position=1, over=over)
    written = trained.forced(TEXT).written
    assert written is not None
    expected = gf.patching(trained, TEXT, OTHER, preference(written[1], 1), over)
    np.testing.assert_allclose(found.arrays["effects"], expected.effects, atol=1e-4)
    assert found.header["points"] == expected.points
    if over == "positions":
        assert found.header["labels"] == [name(label) for label in expected.labels]
        assert (found.header["stack"], found.header["words"]) == ("encoder", [[0], [1], [2]])
        assert found.arrays["effects"][:, 1].max() > 0.9  # the word itself carries it


@pytest.mark.parametrize(
    ("view", "options", "status", "said"),
    [
        ("layers.parts", {"position": 99}, 400, "there is no place 99"),
        ("layers.parts", {"position": 0, "token": 4000}, 400, "there is no token 4000"),
        ("layers.source", {"method": "guessing"}, 422, "method"),
        ("layers.source", {"steps": 100_000}, 422, "steps"),
        ("layers.patching", {"other": "a b"}, 400, "choose texts of the same length"),
        ("layers.patching", {"other": TEXT}, 400, "choose texts or a metric that differ"),
        ("layers.patching", {}, 422, "other"),
    ],
)
def test_what_cannot_be_said_is_refused_in_a_sentence(
    client: TestClient, view: str, options: dict[str, Any], status: int, said: str
) -> None:
    response = client.post(f"/api/ask/{view}", json={"run": "copy", "options": {"text": TEXT, **options}})
    assert (response.status_code, said in response.json()["error"]) == (status, True), response.text


def test_what_would_take_minutes_is_refused(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    text, other = "a b c a b d", "a b c a c d"  # which nobody else has asked about
    assert ask(client, "layers", "copy", text=text).header["leaves_out"] is True
    monkeypatch.setattr(passes, "READ", 50)
    assert ask(client, "layers", "copy", text=f"{text} a").header["leaves_out"] is False
    for view, options, said in (
        ("source", {"method": "occlusion"}, "tokens out takes too long: take a shorter text, or input × gradient"),
        ("patching", {"other": other}, "to patch each of 12 places takes too long"),
    ):
        response = client.post(f"/api/ask/layers.{view}", json={"run": "copy", "options": {"text": text, **options}})
        assert (response.status_code, said in response.json()["error"]) == (400, True), response.text
    assert ask(client, "layers.source", "copy", text=text, method="input_x_gradient").arrays == {}
    monkeypatch.setattr(passes, "READ", 20)
    for view, options, said in (
        ("layers.patching", {"other": other, "over": "heads"}, "to patch each of 24 heads takes too long"),
        ("layers.source", {"method": "integrated_gradients"}, "tokens take too long: take a shorter text, or fewer"),
        ("effects", {}, "to switch off each of"),
    ):
        response = client.post(f"/api/ask/{view}", json={"run": "copy", "options": {"text": text, **options}})
        assert (response.status_code, said in response.json()["error"]) == (400, True), response.text
