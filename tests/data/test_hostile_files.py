"""Files that are no text, too long, without end or made to do harm: each is a sentence or a counted row, and soon."""

import gzip
import json
import lzma
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from glassformer.data import Report, prepare, textfiles
from glassformer.data.sources.documents import TextSource
from glassformer.data.textfiles import LONGEST, encoding_of
from glassformer.errors import DataError
from glassformer.recipe import make_recipe, with_absolute_paths

from .helpers import make_source, pairs_of, prepared, read

FILES: dict[str, dict[str, Any]] = {
    "text": {"documents": "paragraph"},
    "tsv": {},
    "jsonl": {},
    "po": {},
    "tmx": {"languages": ["en", "de"]},
    "squad": {},
}
ROWS = "".join(f"one {number}\ttwo {number}\n" for number in range(100))
WIDE = ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be")


TASKS = {"text": "language-modelling", "files": "language-modelling", "squad": "answering"}


def prepare_it(source: dict[str, Any], base: Path) -> None:
    task = TASKS.get(source["kind"], "translation")
    prepare(make_recipe({"source": source, "task": {"kind": task}}), base, base / "cache")


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def a_circle(path: Path) -> None:
    path.symlink_to(path.name)


def a_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("make", [a_pipe, a_circle, a_device, Path.mkdir])
@pytest.mark.parametrize("kind", FILES)
def test_what_is_no_file_is_refused_unopened(kind: str, make: Callable[[Path], None], tmp_path: Path) -> None:
    make(tmp_path / "data")
    source = {"kind": kind, "train": "data", **FILES[kind]}
    with pytest.raises(DataError, match=r"data: (is a (pipe|folder)|cannot be read: Too many levels)"):
        prepare_it(source, tmp_path)
    with pytest.raises(DataError, match="data: "):
        pairs_of(source, tmp_path)


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("name", ["a\0b", "n" * 5_000])
def test_a_name_that_no_file_has_is_a_sentence(kind: str, name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        prepare_it({"kind": kind, "train": name, **FILES[kind]}, tmp_path)


@pytest.mark.parametrize("kind", ["folder", "files", "labelled-folder"])
@pytest.mark.parametrize("name", ["circle", "n" * 5_000])
def test_a_folder_that_is_none_is_a_sentence(kind: str, name: str, tmp_path: Path) -> None:
    a_circle(tmp_path / "circle")
    with pytest.raises(DataError, match=r"is not a folder|cannot be read"):
        prepare_it({"kind": kind, "path": name}, tmp_path)


def test_patterns_and_endings_stay_in_their_folder(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "secret.txt").write_text("secret", encoding="utf-8")
    with pytest.raises(DataError, match="it leaves the folder"):
        make_source({"kind": "files", "path": "in", "pattern": "../*.txt"}).files(tmp_path)
    with pytest.raises(DataError, match="names the end of a file"):
        make_source({"kind": "folder", "path": "in", "languages": ["/../../secret.txt", "de"]}).files(tmp_path)


@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.parametrize("encoding", WIDE)
def test_a_table_in_utf_16_or_32_is_read_and_said(encoding: str, marked: bool, tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_bytes(("\ufeff" * marked + ROWS).encode(encoding))
    rows, report = pairs_of({"kind": "tsv", "train": "t.tsv"}, tmp_path)
    assert rows[7] == ("one 7", "two 7")
    assert (len(rows), report.bad) == (100, {})
    assert f"t.tsv is {encoding[:6].upper()}, not UTF-8, and was read as that" in report.lines()


@pytest.mark.parametrize(
    "text", ["привет мир\nкак дела\n", "你好 世界\n再见\n", "नमस्ते दुनिया\n", "one\ttwo\n", "é ü\r\nß\r\n"]
)
@pytest.mark.parametrize("encoding", [*WIDE, "utf-8"])
def test_an_encoding_without_a_mark_is_recognised(text: str, encoding: str) -> None:
    assert encoding_of((text * 40).encode(encoding)) == (encoding, 0)


@pytest.mark.parametrize("start", [b"", b"a\0b\tc\n" * 9, b"caf\xe9\n" * 9, bytes(4096), bytes(range(256)) * 16])
def test_what_is_not_utf_16_is_not_taken_for_it(start: bytes) -> None:
    assert encoding_of(start) == ("utf-8", 0)


@pytest.mark.parametrize("letter", ["\0", "\x1b", "\x7f", "\x80"])
def test_rows_with_control_characters_are_counted(letter: str, tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text(
        f"good\tgut\nb{letter}d\tschlecht\nform\x0cfeed\tja\n", encoding="utf-8", newline=""
    )
    rows, report = pairs_of({"kind": "tsv", "train": "t.tsv"}, tmp_path)
    assert rows == [("good", "gut"), ("form\x0cfeed", "ja")]
    assert report.bad == {"control characters": 1}
    assert report.examples == [f"t.tsv:2: contains the control character U+{ord(letter):04X}"]


@pytest.mark.parametrize("kind", ["tsv", "jsonl", "po"])
def test_a_line_without_end_is_a_bad_row_and_the_next_is_read(kind: str, tmp_path: Path) -> None:
    good = {"tsv": "a\tb", "jsonl": '{"source": "a", "target": "b"}', "po": 'msgid "a"\nmsgstr "b"'}[kind]
    (tmp_path / "t").write_text(f"{good}\n\n{'x' * (3 * LONGEST)}\n{good}\n", encoding="utf-8")
    rows, report = pairs_of({"kind": kind, "train": "t"}, tmp_path)
    assert rows == [("a", "b")] * 2
    assert report.bad["line too long"] == 1


def test_long_texts_of_many_lines_are_refused_in_little_time(tmp_path: Path) -> None:
    start = time.process_time()
    (tmp_path / "t.po").write_text('msgid "a"\nmsgstr ""\n' + '"bbbbbbbb"\n' * 300_000, encoding="utf-8")
    assert pairs_of({"kind": "po", "train": "t.po"}, tmp_path)[1].bad == {"text too long": 1}
    unit = f"<tu><tuv xml:lang='en'><seg>a</seg></tuv><tuv xml:lang='de'><seg>{'b ' * LONGEST}</seg></tuv></tu>"
    (tmp_path / "t.tmx").write_text(f"<tmx>{unit}</tmx>", encoding="utf-8")
    source = {"kind": "tmx", "train": "t.tmx", "languages": ["en", "de"]}
    assert pairs_of(source, tmp_path)[1].bad == {"text too long": 1}
    (tmp_path / "f" / "x").mkdir(parents=True)
    (tmp_path / "f" / "x" / "1.txt").write_text("b " * LONGEST, encoding="utf-8")
    assert pairs_of({"kind": "labelled-folder", "path": "f"}, tmp_path)[1].bad == {"text too long": 1}
    assert time.process_time() - start < 20


def test_deep_and_huge_json_is_a_bad_row(tmp_path: Path) -> None:
    rows = ["[" * 100_000, '{"source": ' + "9" * 5_000 + ', "target": "b"}', json.dumps({"source": "a", "target": "b"})]
    (tmp_path / "t.jsonl").write_text("\n".join(rows), encoding="utf-8")
    found, report = pairs_of({"kind": "jsonl", "train": "t.jsonl"}, tmp_path)
    assert (found, report.bad) == ([("a", "b")], {"not JSON": 2})


def test_deep_xml_takes_little_time(tmp_path: Path) -> None:
    (tmp_path / "t.tmx").write_text("<a>" * 200_000 + "</a>" * 200_000, encoding="utf-8")
    assert pairs_of({"kind": "tmx", "train": "t.tmx", "languages": ["en", "de"]}, tmp_path)[0] == []


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
@pytest.mark.parametrize("kind", FILES)
def test_an_archive_that_unpacks_to_too_much_is_refused(
    kind: str, pack: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("glassformer.data.textfiles.LEAST_UNPACKED", 1 << 20)
    (tmp_path / "bomb").write_bytes(pack(b" " * (4 << 20)))
    with pytest.raises(DataError, match="bomb: unpacks to more than 100 times its size"):
        pairs_of({"kind": kind, "train": "bomb", **FILES[kind]}, tmp_path)


@pytest.mark.parametrize("documents", ["paragraph", "line", "stretch", "file"])
def test_a_document_without_end_is_cut_and_counted(documents: str, tmp_path: Path) -> None:
    text = "ab " * LONGEST
    (tmp_path / "t.txt").write_text(text, encoding="utf-8")
    report, source = Report(), TextSource.model_validate({"kind": "text", "train": "t.txt", "documents": documents})
    found = [example[0] for example, _ in read(source, tmp_path, report=report)]
    assert "".join(found) == text
    assert max(map(len, found)) <= LONGEST
    assert report.changed == {"split": 2}


def test_a_long_file_is_cut_between_lines(tmp_path: Path) -> None:
    text = ("x" * 99 + "\n") * (LONGEST // 60)
    (tmp_path / "t.txt").write_text(text, encoding="utf-8")
    source = TextSource(kind="text", train="t.txt", documents="file")
    first, second = [example[0] for example, _ in read(source, tmp_path)]
    assert first.endswith("x\n")
    assert first + second == text


def test_one_bad_byte_costs_a_paragraph_not_the_file(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_bytes(b"one\n\ncaf\xe9\n\nthree\n")
    report = Report()
    found = list(read(TextSource(kind="text", train="t.txt"), tmp_path, report=report))
    assert [place for _, place in found] == ["t.txt:1", "t.txt:5"]
    assert report.examples == ["t.txt:3: byte 4 (0xe9) is not UTF-8"]


def test_blank_lines_take_no_memory(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("\n" * 1_200_000 + "one" + "\n" * 9, encoding="utf-8")
    for kind in ("paragraph", "stretch"):
        source = TextSource.model_validate({"kind": "text", "train": "t.txt", "documents": kind})
        found = [(example[0], place) for example, place in read(source, tmp_path)]
        assert found[0] == ("one", "t.txt:1200001")


def test_a_long_word_is_cut_for_the_tokenizer_and_said(tmp_path: Path) -> None:
    rows = [f"{number} a\tb" for number in range(50)] + ["x" * 1_000_000 + "\ty"]
    (tmp_path / "t.tsv").write_text("\n".join(rows), encoding="utf-8")
    start = time.process_time()
    source = {"kind": "tsv", "train": "t.tsv"}
    made = prepared(
        source, tmp_path, kind="bpe", tokenizer={"vocabulary": 300}, max_characters=2_000_000, valid=0, test=0
    )
    assert made.report.changed["cuts in long words, for the tokenizer to learn from"] == 999
    assert any(line.startswith("too long: ") for line in made.report.lines())
    assert time.process_time() - start < 20


@pytest.mark.parametrize("name", ["circle", "a\0b", "n" * 5_000])
def test_a_recipe_whose_path_is_none_is_anchored_and_then_refused(name: str, tmp_path: Path) -> None:
    a_circle(tmp_path / "circle")
    anywhere = with_absolute_paths(make_recipe({"source": {"kind": "tsv", "train": name}}), tmp_path)
    with pytest.raises(DataError, match="cannot be read"):
        prepare(anywhere, Path("/"), tmp_path / "cache")


def test_millions_of_blank_lines_are_refused_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(textfiles, "MOST_BLANK", 50)
    (tmp_path / "few.tsv").write_bytes(b"a\tb\n" + b"\r\n" * 50 + b"c\td\n" + b"\n" * 50)
    assert len([line for line in textfiles.lines(tmp_path / "few.tsv", Report()) if line]) == 2
    (tmp_path / "many.tsv").write_bytes(b"a\tb\n" + b"\n" * 10_000)
    found = textfiles.lines(tmp_path / "many.tsv", Report())
    with pytest.raises(DataError, match=r"many\.tsv: has more than 50 blank lines one after the other"):
        list(found)
