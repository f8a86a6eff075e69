"""Captions of images in files: JSON Lines, paths from the file's own folder, several captions, films."""

import json
from pathlib import Path
from typing import Any

import pytest

from captions import written
from glassformer.data import Report
from glassformer.data.sources.captions import CaptionsSource


def read(folder: Path, rows: list[Any], **keys: str) -> tuple[list[Any], Report]:
    text = "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)
    (folder / "data").mkdir(exist_ok=True)
    (folder / "data" / "c.jsonl").write_text(text, encoding="utf-8")
    source, report = CaptionsSource(kind="captions", train="data/c.jsonl", **keys), Report()
    return [found for found, _ in source.read("train", folder, report)], report


def test_paths_start_from_the_file_and_captions_may_be_several(tmp_path: Path) -> None:
    found, report = read(
        tmp_path,
        [
            {"image": "a.png", "caption": "one"},
            {"image": "/b.png", "caption": ["two", "three"]},
            {"image": ["1.png", "2.png"], "caption": "a film"},
        ],
    )
    assert found == [
        ((tmp_path / "data" / "a.png",), ("one",), "a.png"),
        ((Path("/b.png"),), ("two", "three"), "/b.png"),
        ((tmp_path / "data" / "1.png", tmp_path / "data" / "2.png"), ("a film",), "1.png"),
    ]
    assert not report.bad


@pytest.mark.parametrize(
    "row",
    [
        *("{", "[]", "3", {"image": "a.png"}, {"caption": "x"}, {"image": 3, "caption": "x"}),
        *({"image": "", "caption": "x"}, {"image": [], "caption": "x"}, {"image": "a.png", "caption": []}),
        *({"image": "a.png", "caption": [1]}, {"image": [["a.png"]], "caption": "x"}),
    ],
)
def test_bad_rows_are_counted(tmp_path: Path, row: Any) -> None:
    found, report = read(tmp_path, [row, {"image": "a.png", "caption": "x"}])
    assert len(found) == 1
    assert report.bad.total() == 1
    assert report.examples[0].startswith("data/c.jsonl:1: ")


def test_fields_have_other_names(tmp_path: Path) -> None:
    row = {"file": "a.png", "said": {"people": ["x", "y"]}}
    found, _ = read(tmp_path, [row], image="file", caption="said.people")
    assert found[0].captions == ("x", "y")


def test_they_are_recognised_and_changed_images_are_noticed(tmp_path: Path) -> None:
    file = written(tmp_path, 3)
    assert CaptionsSource.recognised([file]) == {"train": str(file), "image": "image", "caption": "caption"}
    (tmp_path / "pairs.jsonl").write_text('{"source": "a", "target": "b"}\n', encoding="utf-8")
    assert CaptionsSource.recognised([tmp_path / "pairs.jsonl"]) is None
    source = CaptionsSource(kind="captions", train=str(file))
    before = source.versions(tmp_path)
    (tmp_path / "seen" / "001.png").write_bytes(b"other")
    assert source.versions(tmp_path) != before
