"""Compare: what the page is sent of two runs is what the comparison says."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
from starlette.testclient import TestClient

from every_task import EveryTask
from glassformer.looking.comparing import compare
from glassformer.studio.guards import Endpoint
from glassformer.studio.run_pool import RunPool
from glassformer.studio.server import create_app
from glassformer.studio.views import compare as view

from .conftest import HOST, PORT
from .test_views import ask

TEXT = "a b c d"


def studio(every_task: EveryTask, *names: str) -> TestClient:
    pool = RunPool([every_task.path(name) for name in names], "cpu")
    return TestClient(create_app(pool, Endpoint("127.0.0.1", PORT)), base_url=HOST)


def test_two_runs_are_compared_as_the_library_does(every_task: EveryTask) -> None:
    one, two = every_task("copy"), every_task("bart")
    expected = compare(one, two, TEXT)
    found = ask(studio(every_task, "copy", "bart"), "compare", "copy", text=TEXT, other="bart")
    said = found.header
    assert tuple("".join(text for text, _ in pieces) for pieces in said["outputs"]) == expected.outputs
    for mine, other in (said["outputs"], said["outputs"][::-1]):
        shared = ["".join(text for text, lacking in pieces if not lacking) for pieces in (mine, other)]
        assert shared[0] == shared[1]
    assert said["scores"] == [asdict(each) for each in expected.scores]
    assert said["diverges"] == (expected.diverges.point if expected.diverges else None) == "encoder.embedding"
    assert [(each["layer"], each["head"], tuple(each["nearest"])) for each in said["heads"]] == [
        (each.layer, each.head, each.nearest) for each in expected.heads
    ]
    assert expected.traces is not None
    assert said["words"] == {stack: rows[0] for stack, rows in expected.traces[0].about.words.items()}
    assert [each["name"] for each in said["kinds"] if each["written"]] == ["decoder.cross"]
    weights: Any = expected.traces[1].attention("decoder.cross")[:, 0]
    np.testing.assert_allclose(found.arrays["b decoder.cross"] / 255, weights, atol=1 / 255)


def test_of_long_texts_the_weights_are_left_out(every_task: EveryTask, monkeypatch: Any) -> None:
    monkeypatch.setattr(view, "MOST", 10)
    found = ask(studio(every_task, "copy", "bart"), "compare", "copy", text=TEXT, other="bart")
    assert found.header["heads"]
    assert found.arrays == {}


def test_runs_that_read_different_things_are_refused(every_task: EveryTask) -> None:
    client = studio(every_task, "copy", "two texts")
    response = client.post("/api/ask/compare", json={"run": "copy", "options": {"text": TEXT, "other": "two texts"}})
    assert response.status_code == 400
    assert response.json()["error"] == (
        'this run reads text, but "two texts" first text and second text: they cannot be compared'
    )
