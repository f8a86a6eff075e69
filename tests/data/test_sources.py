"""Sources: every form of file gives the same pairs, and bad rows are named, counted, or fatal."""

import gzip
import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from glassformer.data import own_splits
from glassformer.errors import DataError

from .helpers import pairs_of, recipe

PAIRS = [("a cat", "eine Katze"), ("a dog", "ein Hund"), ("two\u00a0hats", "zwei Hüte")]
TABLE = "".join(f"{source}\t{target}\n" for source, target in PAIRS).encode()
PACK: dict[str, Callable[[bytes], bytes]] = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}


def write(path: Path, contents: bytes | str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(contents if isinstance(contents, bytes) else contents.encode())


@pytest.mark.parametrize("packed", PACK)
def test_tables(packed: str, tmp_path: Path) -> None:
    write(tmp_path / f"t.tsv{packed}", PACK[packed](TABLE))
    found, report = pairs_of({"kind": "tsv", "train": f"t.tsv{packed}"}, tmp_path)
    assert found == PAIRS
    assert (report.read, report.bad.total()) == (3, 0)


def test_a_packed_file_needs_no_ending(tmp_path: Path) -> None:
    write(tmp_path / "t", gzip.compress(TABLE))
    assert pairs_of({"kind": "tsv", "train": "t"}, tmp_path)[0] == PAIRS


def test_columns_are_chosen_and_more_columns_are_no_harm(tmp_path: Path) -> None:
    write(tmp_path / "t", "x\tKatze\tcat\ty\n")
    assert pairs_of({"kind": "tsv", "train": "t", "columns": [2, 1]}, tmp_path)[0] == [("cat", "Katze")]


def test_marks_and_line_ends_of_other_systems_are_left_out(tmp_path: Path) -> None:
    write(tmp_path / "t", b"\xef\xbb\xbfcat\tKatze\r\ndog\tHund\r\nhat\tHut")
    found, _ = pairs_of({"kind": "tsv", "train": "t"}, tmp_path)
    assert found == [("cat", "Katze"), ("dog", "Hund"), ("hat", "Hut")]


@pytest.mark.parametrize("packed", PACK)
def test_aligned_files(packed: str, tmp_path: Path) -> None:
    for side, name in enumerate(("en", "de")):
        write(tmp_path / f"{name}{packed}", PACK[packed]("".join(f"{pair[side]}\n" for pair in PAIRS).encode()))
    assert pairs_of({"kind": "aligned", "train": [f"en{packed}", f"de{packed}"]}, tmp_path)[0] == PAIRS


@pytest.mark.parametrize(("left", "right"), [(3, 5), (5, 3), (0, 1)])
def test_aligned_files_of_different_length_are_an_error_with_both_counts(left: int, right: int, tmp_path: Path) -> None:
    write(tmp_path / "en", "a\n" * left)
    write(tmp_path / "de", "b\n" * right)
    with pytest.raises(DataError, match=f"en has {left} lines but de has {right}"):
        pairs_of({"kind": "aligned", "train": ["en", "de"]}, tmp_path)


def test_objects(tmp_path: Path) -> None:
    write(tmp_path / "t", "".join(json.dumps({"en": {"text": a}, "x.y": b}) + "\n" for a, b in PAIRS))
    assert pairs_of({"kind": "jsonl", "train": "t", "fields": ["en.text", "x.y"]}, tmp_path)[0] == PAIRS


def test_a_list_of_sentences_is_a_text_and_one_of_several_targets_is_chosen(tmp_path: Path) -> None:
    row = {"source": ["One.", "Two."], "target": ["First.", "Other."], "n": [1, "x"]}
    write(tmp_path / "t", json.dumps(row) + "\n")
    found, _ = pairs_of({"kind": "jsonl", "train": "t", "fields": ["source", "target.0"]}, tmp_path)
    assert found == [("One. Two.", "First.")]
    for field in ("target.7", "n"):
        _, report = pairs_of({"kind": "jsonl", "train": "t", "fields": ["source", field]}, tmp_path)
        assert report.bad == {"missing field": 1}


BAD = {
    "wrong column count": (b"only one column", "t:2: 1 column, at least 2 expected"),
    "invalid UTF-8": (b"caf\xe9\tx", "t:2: byte 4 (0xe9) is not UTF-8"),
    "empty side": (b"a\t ", "t:2: the target is empty"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_rows_of_a_table(kind: str, tmp_path: Path) -> None:
    row, sentence = BAD[kind]
    write(tmp_path / "t", b"a\tb\n" + row + b"\nc\td\n")
    found, report = pairs_of({"kind": "tsv", "train": "t"}, tmp_path)
    assert found == [("a", "b"), ("c", "d")]
    assert (report.read, report.bad, report.examples) == (3, {kind: 1}, [sentence])
    with pytest.raises(DataError) as caught:
        pairs_of({"kind": "tsv", "train": "t"}, tmp_path, strict=True)
    assert str(caught.value) == f"{sentence} (data.strict is on)"


@pytest.mark.parametrize(
    ("row", "kind", "sentence"),
    [
        ("{", "not JSON", "t:1: is not a JSON object"),
        ('{"source": "a"}', "missing field", "t:1: has no text under target"),
        ('{"source": "a", "target": [3]}', "missing field", "t:1: has no text under target"),
        ("[1]", "missing field", "t:1: has no text under source"),
        ('{"source": "", "target": "b"}', "empty side", "t:1: the source is empty"),
        (r'{"source": "\ud800", "target": "b"}', "invalid Unicode", "t:1: holds half a surrogate pair"),
    ],
)
def test_bad_rows_of_objects(row: str, kind: str, sentence: str, tmp_path: Path) -> None:
    write(tmp_path / "t", row + "\n")
    found, report = pairs_of({"kind": "jsonl", "train": "t"}, tmp_path)
    assert found == []
    assert report.bad == {kind: 1}
    assert report.examples[0].startswith(sentence)


def test_bad_rows_of_aligned_files_are_named_by_the_file_they_are_in(tmp_path: Path) -> None:
    write(tmp_path / "en", b"a\nb\nc\n")
    write(tmp_path / "de", b"A\n\xff\nC\n")
    found, report = pairs_of({"kind": "aligned", "train": ["en", "de"]}, tmp_path)
    assert found == [("a", "A"), ("c", "C")]
    assert report.examples == ["de:2: byte 1 (0xff) is not UTF-8"]


@pytest.mark.parametrize(
    "contents",
    [gzip.compress(TABLE * 99)[:-20], lzma.compress(TABLE)[:-9], b"\x1f\x8bnonsense"],
    ids=["gzip", "xz", "nonsense"],  # gzip's bytes hold the time
)
def test_a_damaged_archive_is_named(contents: bytes, tmp_path: Path) -> None:
    write(tmp_path / "t.gz", contents)
    with pytest.raises(DataError, match=r"t\.gz: is a damaged or unfinished archive"):
        pairs_of({"kind": "tsv", "train": "t.gz"}, tmp_path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere\.tsv: cannot be read: No such file"):
        pairs_of({"kind": "tsv", "train": "nowhere.tsv"}, tmp_path)


LAYOUTS: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "tables": ({"train.tsv": "a\tA\n", "dev.tsv": "b\tB\n", "test.tsv": "c\tC\n"}, {}),
    "objects": (
        {f"{name}.jsonl": json.dumps({"s": low, "t": low.upper()})
         for name, low in (("train", "a"), ("val", "b"), ("test", "c"))},
        {"fields": ["s", "t"]},
    ),
    "aligned": (
        {"train.en": "a", "train.de": "A", "valid.en": "b", "valid.de": "B", "test.en": "c", "test.de": "C"},
        {"languages": ["en", "de"]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("packed", PACK)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_folders(layout: str, packed: str, tmp_path: Path) -> None:
    files, more = LAYOUTS[layout]
    for name, contents in files.items():
        write(tmp_path / "folder" / f"{name}{packed}", PACK[packed](contents.encode()))
    source = {"kind": "folder", "path": "folder", **more}
    assert own_splits(recipe(source).source, tmp_path) == ("train", "valid", "test")
    assert pairs_of(source, tmp_path)[0] == [("a", "A")]
    assert pairs_of(source, tmp_path, "valid")[0] == [("b", "B")]
    assert pairs_of(source, tmp_path, "test")[0] == [("c", "C")]


@pytest.mark.parametrize(
    ("files", "more", "sentence"),
    [
        ([], {}, "holds no train.tsv or train.jsonl"),
        (["train.en"], {"languages": ["en", "de"]}, "holds no train.en and train.de"),
        (["train.en", "train.de", "test.de"], {"languages": ["en", "de"]}, "but not its other side for test"),
    ],
)
def test_a_folder_without_the_right_files_says_so(files: list[str], more: Any, sentence: str, tmp_path: Path) -> None:
    for name in files:
        write(tmp_path / name, "a")
    with pytest.raises(DataError, match=sentence):
        pairs_of({"kind": "folder", "path": ".", **more}, tmp_path)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nowhere: is not a folder"):
        pairs_of({"kind": "folder", "path": "nowhere"}, tmp_path)


def test_a_split_that_a_source_does_not_have_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "t", TABLE)
    assert own_splits(recipe({"kind": "tsv", "train": "t", "test": "t"}).source, tmp_path) == ("train", "test")
    with pytest.raises(DataError, match="no valid of its own"):
        pairs_of({"kind": "tsv", "train": "t"}, tmp_path, "valid")
