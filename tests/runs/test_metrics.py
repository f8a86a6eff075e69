"""Metrics that are read while they are written: each once, and all anew where a training went back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.errors import RunError
from glassformer.runs.metrics import METRICS, new_metrics, read_metrics


def lines(*steps: int) -> bytes:
    return "".join(json.dumps({"step": step, "loss": 1 / (step + 1)}) + "\n" for step in steps).encode()


@given(st.lists(st.integers(0, 400), max_size=6))
def test_every_measurement_comes_once_however_the_file_grows(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int]
) -> None:
    folder, whole = tmp_path_factory.mktemp("run"), lines(*range(12))
    found, cursor, known = list[Any](), "", 0
    for cut in [*sorted(cuts), len(whole)]:
        with (folder / METRICS).open("ab") as file:
            file.write(whole[known:cut])
        known = max(known, cut)
        new = new_metrics(folder, cursor)
        assert new.anew == (not cursor or cursor.startswith("0-"))
        found, cursor = ([] if new.anew else found) + new.records, new.cursor
    assert found == read_metrics(folder)
    assert len(found) == 12
    assert new_metrics(folder, cursor).records == []


def test_a_training_that_went_back_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / METRICS
    path.write_bytes(lines(*range(10)))
    first = new_metrics(tmp_path)
    for kept in (lines(*range(4)), lines(*range(4), *range(40, 60)), lines(9, 8, 7, 6, 5, 4, 3, 2, 1, 0)):
        path.write_bytes(kept)  # shorter, longer, and of the same length
        again = new_metrics(tmp_path, first.cursor)
        assert again.anew
        assert again.records == read_metrics(tmp_path)


def test_there_may_be_nothing_yet(tmp_path: Path) -> None:
    assert new_metrics(tmp_path).records == []
    assert new_metrics(tmp_path, "12-00000000").anew
    (tmp_path / METRICS).mkdir()
    with pytest.raises(RunError, match=r"metrics.jsonl: cannot be read: "):
        new_metrics(tmp_path)
