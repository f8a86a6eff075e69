"""Training: what the page is sent is what was measured, once, while a training goes on that notices nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from starlette.testclient import TestClient

from glassformer.looking.packing import answer_of
from glassformer.looking.sentences import sentence_of
from glassformer.recipe import make_recipe
from glassformer.runs import train
from glassformer.runs.looks import read_looks
from glassformer.runs.metrics import read_metrics
from glassformer.runs.training import Listener
from glassformer.studio.guards import Endpoint
from glassformer.studio.run_pool import RunPool
from glassformer.studio.server import create_app
from glassformer.training.checkpoints import weights
from tiny import IDLE, table

from .conftest import HOST, PORT
from .test_views import ask

TEXTS = ["a b c", "d e"]
RECIPE = make_recipe(
    {**table(IDLE, {"train": {"steps": 7}, "model": {"dropout": 0.0}}), "look": {"texts": TEXTS, "every": 3}}
)


def studio(*folders: Path) -> TestClient:
    return TestClient(create_app(RunPool(folders, "cpu"), Endpoint("127.0.0.1", PORT)), base_url=HOST)


class Watching(Listener):
    """Asks the Studio after every step."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.cursor = folder, ""
        self.client: TestClient | None = None
        self.steps, self.about = list[float](), dict[str, Any]()

    def tick(self, record: dict[str, Any]) -> None:
        if self.client is None:
            self.client = studio(self.folder)
            self.about = ask(self.client, "about", "run").header
        found = ask(self.client, "training", "run", runs=["run"], cursors={"run": self.cursor})
        (said,) = found.header["runs"]
        assert said["training"]
        self.cursor = said["cursor"]
        self.steps += found.arrays["0 step"].tolist() if said["keys"] else []


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Watching, Any]:
    folder = tmp_path_factory.mktemp("watched") / "run"
    listener = Watching(folder)
    return listener, train(RECIPE, folder, listener=listener)


def test_a_training_that_is_watched_ends_with_the_same_weights(watched: tuple[Watching, Any], tmp_path: Path) -> None:
    plain = train(RECIPE, tmp_path / "run")
    ours, theirs = weights(watched[1].model), weights(plain.model)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_each_measurement_is_sent_once_while_training(watched: tuple[Watching, Any]) -> None:
    listener, run = watched
    sent = [record["step"] for record in read_metrics(run.path)]
    assert listener.steps == sent[: len(listener.steps)]
    assert len(listener.steps) >= 5


def test_a_run_that_cannot_be_loaded_yet_has_its_training_to_show(watched: tuple[Watching, Any]) -> None:
    about = watched[0].about
    assert about["views"] == ["training", "watched"]
    assert "checkpoint" in about["why"]


def test_curves_are_what_was_measured(watched: tuple[Watching, Any]) -> None:
    folder = watched[1].path
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    found = ask(studio(folder), "training", "run", runs=["run"])
    (said,) = found.header["runs"]
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
    assert (said["training"], said["steps"], said["watch"], said["texts"]) == (False, 7, "loss", TEXTS)
    records = read_metrics(folder)
    for key in said["keys"]:
        expected = [np.nan if record.get(key) is None else record[key] for record in records]
        np.testing.assert_allclose(found.arrays[f"0 {key}"], expected, rtol=1e-6)


def test_watched_texts_are_those_of_the_looks(watched: tuple[Watching, Any]) -> None:
    folder, client = watched[1].path, studio(watched[1].path)
    assert ask(client, "training", "run", runs=["run"]).header["runs"][0]["looks"] == [0, 3, 6, 7]
    for step, trace in read_looks(folder):
        for text in range(len(TEXTS)):
            found, own = (
                ask(client, "watched", "run", runs=["run"], step=step, text=text),
                answer_of(sentence_of(trace, text)),
            )
            assert found.header["input"] == TEXTS[text]
            for name, array in own.arrays.items():
                np.testing.assert_array_equal(found.arrays[name], array)


@pytest.mark.parametrize(
    ("view", "options", "status", "message"),
    [
        ("training", {"runs": ["other"]}, 404, 'there is no run "other"'),
        ("training", {"runs": []}, 422, "runs"),
        ("training", {"runs": ["run"], "cursors": {"run": "../x"}}, 422, "cursors.run"),
        ("watched", {"runs": ["run"], "step": 5}, 400, "no look was taken at step 5: there is 0, 3, 6, 7"),
        ("watched", {"runs": ["run"], "step": 3, "text": 2}, 400, "there is no text 2: the trace has 2"),
    ],
)
def test_what_is_not_there_is_refused(
    watched: tuple[Watching, Any], view: str, options: dict[str, Any], status: int, message: str
) -> None:
    response = studio(watched[1].path).post(f"/api/ask/{view}", json={"run": "run", "options": options})
    assert response.status_code == status
    assert message in response.json()["error"]
