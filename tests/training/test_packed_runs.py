"""Runs whose steps are packed and captured, as on a GPU: the way of the command, with a graph that is its own work."""

import copy
import json
import math
import os
import signal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from glassformer.errors import Stopped
from glassformer.runs import train
from glassformer.runs.building import prepare_corpus
from glassformer.runs.training import Listener
from glassformer.suggest.speed import measured_speed
from glassformer.tasks.losses import IGNORED
from glassformer.tasks.translation import PackedPairs
from glassformer.training import Checkpoints, loop, shaping
from glassformer.training.stepping import CapturedSteps, Setting
from tiny import recipe
from training.test_packing import replayed

TINY: dict[str, dict[str, Any]] = {
    "source": {"count": 300, "length": 12},
    "model": {"dropout": 0.1, "layers": 1, "width": 16, "heads": 2, "hidden": 32},
    "train": {"optimiser": "adamw", "steps": 30, "batch_tokens": 256, "warmup": 5, "log_every": 1, "save_every": 1000},
}


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Where steps are captured: the batches that they have."""
    found: list[Any] = []
    packable = shaping.packable

    def steps_of(setting: Setting, lone: bool) -> CapturedSteps:
        steps = replayed(setting, lone)
        add = steps.add

        def noted(batch: Any, last: bool) -> None:
            found.append(copy.deepcopy(batch))  # since a graph's own is written over
            add(batch, last)

        steps.add = noted  # type: ignore[method-assign]
        return steps

    monkeypatch.setattr(loop, "CapturedSteps", steps_of)
    monkeypatch.setattr(shaping, "captures", lambda *_: True)
    monkeypatch.setattr(shaping, "packable", lambda _, model: packable(True, model))
    return found


def lines(folder: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [row for row in rows if "tokens_per_s" in row]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"train": {"accumulate": 3, "steps": 9}},
        {"train": {"consistency": 1.0, "smoothing": 0.2, "ema": 0.9, "clip": 0.3}},
        {"tune": {"mode": "lora", "rank": 2}, "train": {"optimiser": "muon"}},
        {"model": {"positions": "learned"}, "train": {"average": 2, "save_every": 7, "validate_every": 8}},
    ],
    ids=["plain", "accumulate", "r-drop", "lora", "learned"],
)
@pytest.mark.filterwarnings("ignore:.*has no effect")
def test_a_stopped_run_goes_on_to_the_same_weights(
    taken: list[Any], tmp_path: Path, changes: dict[str, dict[str, Any]]
) -> None:
    change = {name: TINY.get(name, {}) | changes.get(name, {}) for name in {**TINY, **changes}}
    steps = change["train"]["steps"]
    if "tune" in change:
        train(recipe(TINY), tmp_path / "base")
        change["model"] = {"pretrained": str(tmp_path / "base")}
        taken.clear()

    class Stopping(Listener):
        def tick(self, record: dict[str, Any]) -> None:
            if record["step"] == steps // 2 + 1:
                os.kill(os.getpid(), signal.SIGTERM)

    train(recipe(change), tmp_path / "whole")
    straight = taken.copy()
    assert {type(batch) for batch in straight} == {PackedPairs}
    taken.clear()
    with pytest.raises(Stopped):
        train(recipe(change), tmp_path / "stopped", listener=Stopping())
    torch.manual_seed(99)
    train(recipe(change), tmp_path / "stopped", resume=True)
    assert all(torch.equal(one.source, two.source) for one, two in zip(straight, taken, strict=True))
    one, two = (Checkpoints(tmp_path / name).at(steps) for name in ("whole", "stopped"))
    for name in ("model", "optimiser", "average"):
        if one.has(name):
            ours, theirs = one.tensors(name), two.tensors(name)
            assert all(torch.equal(ours[key], theirs[key]) for key in ours), name


def sources_of(batch: PackedPairs) -> list[tuple[int, ...]]:
    """The sources of a row that are not there to fill it up."""
    read, written = (pairwise(starts.tolist()) for starts in (batch.source_starts, batch.target_starts))
    return [
        tuple(batch.source[0, first:end].tolist())
        for (first, end), (begin, last) in zip(read, written, strict=True)
        if bool((batch.target_out[0, begin:last] != IGNORED).any())
    ]


def test_an_epoch_of_a_run_has_every_pair_once_and_counts_its_tokens(taken: list[Any], tmp_path: Path) -> None:
    made = recipe({**TINY, "train": TINY["train"] | {"steps": 40}})
    train(made, tmp_path)
    rows = lines(tmp_path)
    steps = next(int(row["step"]) for row in rows if row["epoch"] == 1)
    assert 5 < steps < 40
    sources = [source for batch in taken[:steps] for source in sources_of(batch)]
    known = prepare_corpus(made).splits["train"]
    assert sorted(sources) == sorted(tuple(known.source(row).tolist()) for row in range(len(known.lengths)))
    for batch, row in zip(taken, rows, strict=True):
        real = sum(map(len, sources_of(batch))) + int((batch.target_out != IGNORED).sum())
        assert row["padding"] == pytest.approx(1 - real / batch.padded_tokens)
    assert rows[steps - 1]["tokens"] == int(known.lengths.sum())


def test_a_suggestion_measures_the_steps_that_will_be_taken(taken: list[Any]) -> None:
    made = recipe(TINY)
    measured_speed(made, prepare_corpus(made))
    assert {type(batch) for batch in taken} == {PackedPairs}


@pytest.mark.parametrize(
    "pairs",
    [
        [("a b", "c")],
        [("a", f"b {i}") for i in range(9)] + [("c " * 62, "d " * 61)],
        [(f"a {i}" + " b" * 58, "c " * 62) for i in range(9)],
    ],
    ids=["one", "one long", "as long as a batch"],
)
def test_odd_corpora_are_packed_and_trained_on(taken: list[Any], tmp_path: Path, pairs: list[tuple[str, str]]) -> None:
    (tmp_path / "pairs.tsv").write_text("".join(f"{one}\t{other}\n" for one, other in pairs), encoding="utf-8")
    change = {
        **TINY,
        "source": {"kind": "tsv", "train": str(tmp_path / "pairs.tsv")},
        "tokenizer": {"kind": "word", "vocabulary": 60},
        "data": {"valid": 0.0, "test": 0.0},
        "train": TINY["train"] | {"steps": 4, "batch_tokens": 66},
    }
    train(recipe(change), tmp_path / "run")
    assert {type(batch) for batch in taken} == {PackedPairs}
    assert [math.isfinite(row["loss"]) for row in lines(tmp_path / "run")] == [True] * 4
