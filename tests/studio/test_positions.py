"""Positions and embeddings on a page: the model's scheme, maps of tokens, and their neighbours."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

import glassformer as gf
from glassformer.looking.windows import window
from glassformer.studio.views.positions import TOP
from glassformer.tasks.translation import Translator

from .test_views import ask

TEXT, OTHER = "a b c", "c b a a"
KEPT = ["embedding", "before", "after", "output"]


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_the_scheme_is_that_of_the_model(client: TestClient, trained: Translator, stack: str) -> None:
    found = ask(client, "positions", "copy", stack=stack, length=10)
    (scheme,) = gf.analyses.position_schemes(trained, stack, 10)
    assert found.header["schemes"] == [{"kind": scheme.kind, "distances": scheme.distances}]
    for name in ("vectors", "similarity", "by_distance"):
        np.testing.assert_allclose(found.arrays[f"0 {name}"], getattr(scheme, name))


@pytest.mark.parametrize("other", ["", OTHER])
def test_maps_are_principal_components_turned(client: TestClient, trained: Translator, other: str) -> None:
    found = ask(client, "embeddings", "copy", text=TEXT, other=other, stack="encoder")
    traces = [trained.look(text, keep=KEPT) for text in (TEXT, other) if text]
    expected = gf.analyses.aligned(gf.analyses.pca(traces))
    assert found.header["points"] == expected.points
    assert found.header["texts"] == [0] * 3 + [1] * (4 if other else 0)
    np.testing.assert_allclose(found.arrays["places"], expected.values, atol=1e-3)
    same = gf.analyses.static_similarity(traces[0])
    np.testing.assert_allclose(found.arrays["static"], same.values, atol=1e-4)


def test_neighbours_are_those_of_the_texts_and_of_the_vocabulary(client: TestClient, trained: Translator) -> None:
    said = ask(client, "embeddings.near", "copy", text=TEXT, other=OTHER, stack="encoder", of=1, token=2).header
    traces = [trained.look(text, keep=KEPT) for text in (TEXT, OTHER)]
    expected = gf.analyses.neighbours(traces, 1, 2, top=TOP)
    assert [[(each["of"], each["place"]) for each in layer] for layer in said["near"]] == expected.places
    np.testing.assert_allclose(
        [[each["cosine"] for each in layer] for layer in said["near"]], expected.cosine, atol=1e-3
    )
    token = int(traces[1]["encoder.tokens"][0, 2])
    near = gf.analyses.table_neighbours(trained, token, top=TOP)
    assert [each["cosine"] for each in said["vocabulary"]] == pytest.approx([cosine for _, cosine in near], abs=1e-3)


@pytest.mark.parametrize(
    ("view", "options", "status", "said"),
    [
        ("positions", {"stack": "encoder", "length": 3}, 422, "length"),
        ("positions", {"stack": "middle"}, 422, "stack"),
        ("embeddings", {"text": "a", "stack": "encoder"}, 400, "there are at most 1 components"),
        ("embeddings.near", {"text": TEXT, "stack": "encoder", "token": 50}, 400, "there is no token 50"),
        ("embeddings.near", {"text": TEXT, "stack": "encoder", "of": 1}, 400, "name a second one"),
    ],
)
def test_what_cannot_be_said_is_refused(
    client: TestClient, view: str, options: dict[str, Any], status: int, said: str
) -> None:
    response = client.post(f"/api/ask/{view}", json={"run": "copy", "options": options})
    assert (response.status_code, said in response.json()["error"]) == (status, True), response.text


def test_of_long_texts_a_map_has_the_first_tokens(
    client: TestClient, trained: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("glassformer.studio.views.positions.MOST", 6)
    options = {"text": "b b c d e", "other": "c c a a", "stack": "encoder"}
    found = ask(client, "embeddings", "copy", **options)
    assert (found.header["tokens"], found.header["texts"]) == (["·b", "·b", "·c", "·c", "·c", "·a"], [0] * 3 + [1] * 3)
    assert found.header["total"] == 9
    traces = [window(trained.look(text, keep=KEPT), 0, 3) for text in (options["text"], options["other"])]
    np.testing.assert_allclose(found.arrays["places"], gf.analyses.aligned(gf.analyses.pca(traces)).values, atol=1e-3)
    near = ask(client, "embeddings.near", "copy", **options, of=0, token=2).header
    assert {each["place"] for layer in near["near"] for each in layer} <= {0, 1, 2}
