"""Tagging by command, and recurrent runs as a user meets them: files, pipes, JSON, and what is wrong with them."""

import json
import re
from pathlib import Path

import pytest

import glassformer as gf

from .helpers import Command, complains, envelopes

SMALL = ["source.count=600", "train.steps=60", "train.lr=2e-2", "train.device=cpu", "model.width=32"]


@pytest.fixture(scope="module")
def tagger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tags")
    gf.train("tags", folder / "run", changes=SMALL)
    return folder / "run"


def test_a_line_in_a_line_out_in_order(tagger: Path, command: Command, tmp_path: Path) -> None:
    piped = command("tag", "--run", tagger, stdin=b"they must fish\n\n  we  walk \n")
    assert piped.out == "they must fish\tPRON AUX VERB\n\nwe walk\tPRON VERB\n"
    (tmp_path / "a.txt").write_text("they must fish\n", encoding="utf-8")
    for words in (["they must fish"], ["--file", tmp_path / "a.txt"]):
        assert command("tag", "--run", tagger, *words).out == "they must fish\tPRON AUX VERB\n"


def test_objects_have_a_tag_and_a_probability_for_each_word(tagger: Path, command: Command) -> None:
    first, second = envelopes(command("tag", "--run", tagger, "--json", stdin=b"we walk\n\n"))
    assert (first["input"], first["words"], first["output"]) == ("we walk", ["we", "walk"], ["PRON", "VERB"])
    assert first.keys() == {"input", "output", "error", "words", "probabilities"}
    assert len(first["probabilities"]) == 2
    assert all(0 < each <= 1 for each in first["probabilities"])
    assert second == {"input": "", "output": [], "error": None, "words": [], "probabilities": []}


def test_a_line_that_is_no_text_leaves_the_others_theirs(tagger: Path, command: Command) -> None:
    answer = command("tag", "--run", tagger, stdin=b"we walk\n\xff\nwe walk\n")
    assert answer.code == 2
    assert answer.out.splitlines() == ["we walk\tPRON VERB", "", "we walk\tPRON VERB"]
    assert answer.err.splitlines()[0] == "glassformer: standard input:2: is not UTF-8 text"
    rows = envelopes(command("tag", "--run", tagger, "--json", stdin=b"we walk\n\xff\n"))
    assert rows[1] == {"input": None, "output": None, "error": "standard input:2: is not UTF-8 text"}


def test_what_it_writes_can_be_evaluated(tagger: Path, command: Command, tmp_path: Path) -> None:
    written = command("tag", "--run", tagger, "they must fish", "we walk").out
    (tmp_path / "own.tsv").write_text(written, encoding="utf-8")
    found = json.loads(command("evaluate", "--run", tagger, "--data", tmp_path / "own.tsv", "--json").out)
    assert (found["words"], found["accuracy"], found["exact"]) == (5, 1.0, 1.0)
    lines = command("evaluate", "--run", tagger).out.splitlines()
    assert re.search(r"accuracy [\d.]+%  \[[\d.]+%, [\d.]+%\], macro F1 [\d.]+  \[[\d.]+, [\d.]+\]$", lines[0])
    assert lines[1].startswith("sentences without a mistake: ")


@pytest.mark.parametrize(
    ("row", "words"),
    [("we walk\tPRON", "own.tsv:1: has 2 words but 1 tags"), ("we walk\tPRON VREB", "own.tsv:1: 'VREB' is not among")],
)
def test_a_bad_row_is_named(tagger: Path, command: Command, tmp_path: Path, row: str, words: str) -> None:
    (tmp_path / "own.tsv").write_text(row, encoding="utf-8")
    complains(command("evaluate", "--run", tagger, "--data", tmp_path / "own.tsv"), 2, words)


def test_a_tagger_does_nothing_else(tagger: Path, command: Command, tmp_path: Path) -> None:
    complains(command("translate", "--run", tagger), 2, "does not translate: it was trained for tagging")
    complains(command("export", "--run", tagger, tmp_path / "out"), 2, 'the family "recurrent" has no counterpart')


@pytest.mark.parametrize("attention", ["none", "additive"])
def test_training_ends_with_a_picture_where_there_is_one(attention: str, command: Command, tmp_path: Path) -> None:
    few = ["train.steps=2", "source.symbols=3", "source.length=4", "train.device=cpu", f"model.attention={attention}"]
    changes = [
        word
        for change in [*few, "model.family=recurrent", "model.heads=", "model.hidden="]
        for word in ("--set", change)
    ]
    answer = command("train", "reverse", "--out", tmp_path / "run", *changes)
    assert answer.code == 0, answer.err
    assert (tmp_path / "run" / "attention.png").exists() == (attention != "none")
    assert ("attention.png" in answer.out) == (attention != "none")
