"""Vectors of words on the command line."""

import gzip
import json
from pathlib import Path

import pytest

from .helpers import Command, complains

TEXT = "the king and the queen\nthe man and the woman\n" * 30


@pytest.fixture
def learned(command: Command, tmp_path: Path) -> Path:
    (tmp_path / "text.gz").write_bytes(gzip.compress(TEXT.encode()))
    out = tmp_path / "vectors.txt"
    answer = command("vectors", "train", tmp_path / "text.gz", "--out", out, "--width", 4, "--epochs", 1)
    assert answer.code == 0, answer.err
    assert "6 words of 4 numbers, learned from 300 words of text" in answer.out
    return out


def test_vectors_are_learned_and_asked(command: Command, learned: Path) -> None:
    plain = command("vectors", "near", learned, "king", "--top", 2)
    facts = json.loads(command("vectors", "near", learned, "king", "queen", "--top", 2, "--json").out)
    assert [line.split("\t")[0] for line in plain.out.splitlines()] == [each["word"] for each in facts["king"]]
    assert list(facts) == ["king", "queen"]
    analogy = json.loads(command("vectors", "analogy", learned, "king", "man", "woman", "--json").out)
    assert sorted(each["word"] for each in analogy) == ["and", "queen", "the"]
    assert command("vectors", "analogy", learned, "king", "man", "woman").out.count("\n") == 3


def test_gensim_learns_them_too(command: Command, tmp_path: Path) -> None:
    pytest.importorskip("gensim", reason="the extra `vectors` is not installed")
    out = tmp_path / "v.txt"
    answer = command("vectors", "train", "-", "--out", out, "--with", "gensim", "--width", 4, stdin=TEXT.encode())
    assert answer.code == 0, answer.err
    assert out.read_text(encoding="utf-8").startswith("6 4\n")


def test_what_is_wrong_is_a_sentence(command: Command, learned: Path, tmp_path: Path) -> None:
    complains(command("vectors", "near", learned, "kin"), 2, "'kin' has no vector: did you mean king?")
    complains(command("vectors", "near", tmp_path / "no.txt", "king"), 2, "no.txt: cannot be read")
    (tmp_path / "bad.txt").write_text("1 2\nking 1\n", encoding="utf-8")
    complains(command("vectors", "analogy", tmp_path / "bad.txt", "a", "b", "c"), 2, "bad.txt:2: 1 numbers after")
    train = ("vectors", "train", tmp_path / "bad.txt", "--out")
    complains(command(*train, tmp_path / "v.txt", "--with", "glove"), 2, '--with is "glove": expected ours or gensim')
    complains(command(*train, tmp_path / "no" / "v.txt"), 2, "there is no folder")
    complains(command(*train, tmp_path), 2, "it is a folder; name a file")
    complains(command(*train, tmp_path / "v.txt"), 2, "fewer than two words occur 5 times")
    assert not (tmp_path / "v.txt").exists()
