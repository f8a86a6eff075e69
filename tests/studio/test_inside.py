"""The inside of a model on a page: its stages, its parts unfolded, and how each number was made."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from starlette.testclient import TestClient

from glassformer.looking.recording import record
from glassformer.tasks.translation import Translator

from .test_views import ask

TEXT = "a b c"


@pytest.fixture(scope="module")
def trace(trained: Translator) -> Any:
    """What passes while the run reads the text, all at once."""
    forced = trained.forced(TEXT)
    with record(trained.model) as found, torch.inference_mode():
        trained.model(*forced.inputs)
    return found


def test_the_overview_has_every_stage_and_what_is_said(client: TestClient, trained: Translator, trace: Any) -> None:
    found = ask(client, "inside", "copy", text=TEXT)
    encoder, decoder = found.header["lanes"]
    assert [stage["title"] for stage in encoder["stages"]] == ["embedding + position", "block 0", "block 1", "norm"]
    assert [part["name"] for part in decoder["stages"][1]["parts"]] == [
        "decoder.0.self",
        "decoder.0.cross",
        "decoder.0.ff",
    ]
    assert decoder["tokens"][0] == "start"
    assert encoder["ids"] == trace["encoder.tokens"][0].tolist()
    stream = trace["encoder.0.after"][0]
    assert encoder["stages"][1]["shape"] == list(stream.shape)
    assert found.arrays["encoder.0.after"].shape == (len(stream), 32)
    np.testing.assert_allclose(encoder["stages"][1]["norms"], stream.norm(dim=-1), atol=1e-3)
    best = [next(each["text"] for each in row if each["chosen"]).strip("·") for row in found.header["answers"]]
    assert " ".join(best[:-1]) == trained.translate([TEXT])[0].text
    assert found.header["answers"][0][0]["probability"] == pytest.approx(
        float(trace["logits"][0, 0].softmax(dim=-1).max()), abs=1e-4
    )


def test_an_unfolded_head_has_the_numbers_of_the_trace(client: TestClient, trace: Any) -> None:
    found = ask(client, "inside.part", "copy", text=TEXT, part="decoder.1.self", token=1, head=2)
    for name in ("queries", "keys", "values", "scores", "weights", "heads"):
        np.testing.assert_allclose(found.arrays[name], trace[f"decoder.1.self.{name}"][0, 2], atol=1e-5)
    np.testing.assert_allclose(found.arrays["output"][0], trace["decoder.1.self.output"][0, 1], atol=1e-5)
    assert found.arrays["allowed"].tolist() == np.tril(np.ones_like(found.arrays["allowed"])).tolist()
    assert found.header["tables"]["queries"]["rows"][0] == "start"
    assert found.header["facts"]["norm"] == "LayerNorm"


@pytest.mark.parametrize(
    ("point", "head", "at"),
    [
        ("decoder.1.cross.scores", 3, 2),
        ("decoder.1.cross.weights", 3, 2),
        ("decoder.0.self.queries", 1, 5),
        ("decoder.1.ff.hidden", None, 40),
        ("encoder.1.after", None, 7),
        ("probabilities", None, 9),
        ("logits", None, 9),
    ],
)
def test_the_terms_of_a_number_add_up_to_it(
    client: TestClient, trace: Any, point: str, head: int | None, at: int
) -> None:
    said = ask(client, "inside.cell", "copy", text=TEXT, point=point, token=1, at=at, head=head).header
    row = (
        trace["logits"][0, 1].softmax(dim=-1)
        if point == "probabilities"
        else trace[point][0][1 if head is None else (head, 1)]
    )
    assert said["value"] == pytest.approx(float(row[at]), abs=1e-5)
    for step in said["steps"]:
        written = math.fsum(math.prod(term["factors"]) for term in step["terms"]) + step["others"]["value"]
        assert written == pytest.approx(step["total"], abs=1e-9)
        sizes = [abs(term["value"]) for term in step["terms"]]
        assert sizes == sorted(sizes, reverse=True)
    assert said["steps"][-1]["value"] == pytest.approx(said["value"], abs=1e-4)


@pytest.mark.parametrize(
    ("view", "options", "status", "said"),
    [
        ("inside.part", {"part": "decoder.9.self"}, 400, "there is no layer 9"),
        ("inside.part", {"part": "decoder.0.slf"}, 400, "there is no part"),
        ("inside.part", {"part": "decoder.0.self", "head": 9}, 400, "there is no head 9"),
        ("inside.part", {"part": "decoder.0.self", "head": -1}, 422, "head"),
        ("inside.part", {"part": "<b>"}, 422, "part"),
        ("inside.cell", {"point": "decoder.0.cross.scores", "token": 99, "at": 0, "head": 0}, 400, "no token 99"),
        ("inside.cell", {"point": "decoder.0.crss.scores", "token": 0, "at": 0, "head": 0}, 400, "did you mean"),
        ("inside.cell", {"point": "decoder.tokens", "token": 0, "at": 0}, 400, "read as it is"),
    ],
)
def test_what_is_not_there_is_refused_in_a_sentence(
    client: TestClient, view: str, options: dict[str, Any], status: int, said: str
) -> None:
    response = client.post(f"/api/ask/{view}", json={"run": "copy", "options": {"text": TEXT, **options}})
    assert (response.status_code, said in response.json()["error"]) == (status, True), response.text


def test_a_long_text_is_cut_to_a_window_around_the_token(client: TestClient) -> None:
    text = " ".join(["the house is red and the garden is green"] * 20)
    found = ask(client, "inside.part", "en-de", text=text, part="encoder.0.self", token=60, head=1)
    table = found.header["tables"]["scores"]
    assert found.arrays["scores"].shape == (96, 96)
    assert (table["first"], table["first_column"], table["total"]) == (12, 12, 128)
    assert len(found.header["keys"]) == 96


def test_what_was_forced_to_be_written_is_what_is_looked_at(client: TestClient, trained: Translator) -> None:
    token = trained.target.encode("d")[0]
    found = ask(client, "inside", "copy", text=TEXT, prefix=[token])
    chosen = [next(each["id"] for each in row if each["chosen"]) for row in found.header["answers"]]
    assert chosen[0] == token
    assert found.header["lanes"][1]["ids"] == [trained.special.start, *chosen[:-1]]
    assert found.header["output"] == trained.look(TEXT, prefix=[token]).output


@pytest.mark.parametrize("view", ["inside", "layers"])
def test_a_text_is_never_taken_for_the_name_of_a_file(
    client: TestClient, trained: Translator, monkeypatch: pytest.MonkeyPatch, view: str
) -> None:
    monkeypatch.setattr(Translator, "reads_images", True)
    response = client.post(f"/api/ask/{view}", json={"run": "copy", "options": {"text": "/etc/hostname"}})
    assert (response.status_code, response.json()["error"]) == (
        400,
        "runs for translation take nothing from a page: the task does not say how",
    )
