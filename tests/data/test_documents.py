"""Sources of documents: files cut into paragraphs, lines or stretches, folders, the standard library."""

import gzip
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.data import Document, Report, Source, prepare
from glassformer.data.encoding import DocumentEncoder
from glassformer.data.sources.documents import STRETCH, FilesSource, PythonSource, TextSource, library
from glassformer.errors import DataError
from glassformer.recipe import Tokenizer as Section
from glassformer.recipe import make_recipe
from glassformer.text import Tokenizer

from . import helpers


def documents(source: Source) -> list[tuple[str, str]]:
    found = list(helpers.read(source, Path.cwd(), report=Report(strict=True)))
    assert all(type(document) is Document for document, _ in found)
    return [(document[0], place) for document, place in found]


def read(path: Path, kind: str) -> list[tuple[str, str]]:
    source = TextSource.model_validate({"kind": "text", "train": str(path), "documents": kind})
    return [(text, place.rpartition(":")[2]) for text, place in documents(source)]


def test_a_document_is_a_paragraph_a_line_or_the_file(tmp_path: Path) -> None:
    file = tmp_path / "t.txt.gz"
    file.write_bytes(gzip.compress(b"\xef\xbb\xbfone\r\n  two\r\n\r\n\r\nthree\r\n"))
    assert read(file, "paragraph") == [("one\n  two", "1"), ("three", "5")]
    assert read(file, "line") == [("one", "1"), ("  two", "2"), ("three", "5")]
    assert [text for text, _ in read(file, "file")] == ["one\n  two\n\n\nthree\n"]


def test_stretches_are_long_and_end_between_paragraphs(tmp_path: Path) -> None:
    paragraphs = [f"{number} " + "x" * 400 for number in range(40)]
    (tmp_path / "t.txt").write_text("\n\n".join(paragraphs), encoding="utf-8")
    found = [text for text, _ in read(tmp_path / "t.txt", "stretch")]
    assert len(found) > 2
    assert all(STRETCH <= len(text) < STRETCH + 500 for text in found[:-1])
    assert "\n\n".join(found) == "\n\n".join(paragraphs)


def test_many_blank_lines_take_little_time(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("one" + "\n" * 200_000 + "two", encoding="utf-8")
    assert read(tmp_path / "t.txt", "stretch") == [("one" + "\n" * 200_000 + "two", "1")]
    assert read(tmp_path / "t.txt", "paragraph") == [("one", "1"), ("two", "200001")]


def test_several_files_give_their_documents_one_after_another(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(f"{name} 1\n{name} 2\n", encoding="utf-8")
    source = TextSource(kind="text", train=(str(tmp_path / "b"), str(tmp_path / "a")), documents="line")
    assert [text for text, _ in documents(source)] == ["b 1", "b 2", "a 1", "a 2"]


def test_what_is_no_text_is_told(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_bytes(b"caf\xe9")
    with pytest.raises(DataError, match=r"byte 4 \(0xe9\) is not UTF-8"):
        read(tmp_path / "t.txt", "line")
    with pytest.raises(DataError, match="cannot be read"):
        read(tmp_path / "none.txt", "line")


def test_a_folders_files_are_documents_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name in ("b.txt", "a/c.txt", "a/d.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"text of {name}\n", encoding="utf-8")
    source = FilesSource(kind="files", path=str(tmp_path))
    names = ("a/c.txt", "b.txt")
    assert documents(source) == [(f"text of {name}\n", str(tmp_path / name)) for name in names]
    assert source.files(Path.cwd()) == [tmp_path / name for name in names]
    for change, sentence in (({"pattern": "*.rst"}, "holds no file that matches *.rst"), ({"path": "no"}, "no folder")):
        wrong = source.model_copy(update=change)
        with pytest.raises(DataError, match=re.escape(sentence.replace("no folder", "is not a folder"))):
            documents(wrong)


def test_the_standard_library_is_here_without_its_tests() -> None:
    names = [str(path) for path in library()]
    assert any(name.endswith("argparse.py") for name in names)
    assert not any("/test/" in name or "/site-packages/" in name for name in names)
    found = helpers.read(PythonSource(kind="python"), Path.cwd())
    assert [place for _, place in found] == [name for name in names if Path(name).read_text("utf-8", "replace").strip()]


def test_another_python_is_another_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = PythonSource(kind="python")
    assert source.versions(tmp_path) == {"python": sys.version}
    assert source.files(tmp_path) == []
    monkeypatch.setattr(sys, "version", "4.0")
    assert source.versions(tmp_path) == {"python": "4.0"}


def recipe(task: str, **source: Any) -> Any:
    tables = {"task": {"kind": task}, "source": source, "data": {"max_tokens": 8, "valid": 0.2, "test": 0.2}}
    return make_recipe({**tables, "tokenizer": {"kind": "byte"}, "model": {"width": 8, "heads": 2}})


def test_one_file_gives_three_splits_of_documents_with_their_frames(tmp_path: Path) -> None:
    texts = [f"text {number}" for number in range(50)]
    (tmp_path / "t.txt").write_text("\n\n".join(texts), encoding="utf-8")
    found = prepare(recipe("language-modelling", kind="text", train="t.txt"), tmp_path, tmp_path / "cache")
    tokenizer, train = found.assets.tokenizers[0], found.splits["train"]
    kept = [tokenizer.decode(train.source(row)) for row in range(len(train))]
    held_out = [text for split in ("valid", "test") for (text,) in found.held_out(split)]
    assert sorted([*kept, *held_out]) == sorted(texts)
    assert len(held_out) > 5
    for row in range(len(train)):
        ids = train.source(row)
        assert (ids[0], ids[-1]) == (tokenizer.start, tokenizer.end)
    assert not train.lengths[:, 1].any()
    assert np.array_equal(train.starts, np.cumsum(train.lengths[:, 0]) - train.lengths[:, 0])


def test_the_sources_of_pairs_are_documents_too(tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text("".join(f"text {n}\tlabel\n" for n in range(9)), encoding="utf-8")
    found = prepare(recipe("span-corruption", kind="tsv", train="t.tsv"), tmp_path, tmp_path / "cache")
    assert len(found.assets.tokenizers[0].sentinels) == 100
    held_out = [example for split in ("valid", "test") for example in found.held_out(split)]
    assert held_out  # and none of them holds a label
    assert {*held_out} <= {Document(f"text {n}") for n in range(9)}


def test_another_python_is_another_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from glassformer.data.cache import fingerprint

    asked = recipe("language-modelling", kind="python")
    first = fingerprint(asked, tmp_path, tmp_path)
    monkeypatch.setattr(sys, "version", "4.0")
    assert fingerprint(asked, tmp_path, tmp_path) != first


@given(st.lists(st.text("ab", max_size=30), max_size=6), st.integers(3, 12))
def test_pieces_of_documents_are_within_the_limit_and_lose_nothing(texts: list[str], limit: int) -> None:
    tokenizer = Tokenizer.train([], Section(kind="byte"))
    rows = DocumentEncoder(tokenizer, limit, framed=True)([Document(text) for text in texts])
    assert (rows.lengths[:, 0] <= limit).all()
    assert tokenizer.decode(rows.flat) == "".join(texts)
    assert (rows.flat == tokenizer.start).sum() == (rows.flat == tokenizer.end).sum() == len(rows.lengths)
