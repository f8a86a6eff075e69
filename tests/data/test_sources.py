"""Sources: every form of file gives the same pairs, and bad rows are named, counted, or fatal."""

import gzip
import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from glassformer.data.examples import AnswerSpan, Question
from glassformer.data.report import Report
from glassformer.data.source import SPLITS
from glassformer.errors import DataError
from glassformer.registry import SOURCES

from .helpers import make_source, pairs_of, read

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


@pytest.mark.parametrize("kind", ["tsv", "jsonl"])
def test_two_texts_and_a_label_stand_in_the_order_that_was_asked_for(kind: str, tmp_path: Path) -> None:
    source: dict[str, Any] = {"kind": kind, "train": "t"}
    if kind == "tsv":
        write(tmp_path / "t", "yes\tone\ttwo\n")
        source |= {"columns": [1, 2, 0]}
    else:
        write(tmp_path / "t", json.dumps({"a": "one", "b": "two", "label": "yes"}))
        source |= {"fields": ["a", "b", "label"]}
    assert pairs_of(source, tmp_path)[0] == [("one", "two", "yes")]
    assert make_source(source).columns_read() == 3
    assert make_source({"kind": kind, "train": "t"}).columns_read() == 2


def test_a_header_is_no_row_whatever_its_bytes_are(tmp_path: Path) -> None:
    write(tmp_path / "t", b"caf\xe9\ncat\tKatze\n")
    found, report = pairs_of({"kind": "tsv", "train": "t", "header": True}, tmp_path)
    assert (found, report.bad.total()) == ([("cat", "Katze")], 0)


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


def test_lines_beyond_the_end_of_the_other_file_are_not_counted_for_ever(tmp_path: Path) -> None:
    write(tmp_path / "en", "a\n" * 3)
    write(tmp_path / "de", "\n" * 200_000)
    with pytest.raises(DataError, match="en has 3 lines but de has many more"):
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
        (r'{"source": "\ud800", "target": "b"}', "invalid Unicode", "t:1: contains half a surrogate pair"),
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


def squad(folder: Path, *questions: Any, context: Any = "two cats") -> dict[str, str]:
    write(folder / "q.json", json.dumps({"data": [{"paragraphs": [{"context": context, "qas": questions}]}]}))
    return {"kind": "squad", "train": "q.json"}


def test_questions_have_the_answers_that_people_gave(tmp_path: Path) -> None:
    answers = [{"text": "two", "answer_start": 0}, {"text": "cats", "answer_start": 4}]
    asked = {"question": "What?", "answers": answers}
    source = squad(tmp_path, asked, {**asked, "id": "q2", "is_impossible": True}, {"question": "Who?", "answers": []})
    assert list(read(make_source(source), tmp_path)) == [
        (Question("What?", "two cats", (AnswerSpan("two", 0), AnswerSpan("cats", 4))), "q.json: question 1"),
        (Question("What?", "two cats"), "q.json: question q2"),
        (Question("Who?", "two cats"), "q.json: question 3"),
    ]


@pytest.mark.parametrize(
    ("question", "kind", "sentence"),
    [
        ([], "missing field", "is not a question with its answers"),
        ({"question": "What?"}, "missing field", "is not a question with its answers: 'answers'"),
        ({"question": "What?", "answers": None}, "missing field", "is not a question with its answers"),
        ({"question": " ", "answers": []}, "empty question", "the question is empty"),
        ({"question": "?", "answers": [{"text": "", "answer_start": 0}]}, "empty answer", "an answer is empty"),
        (
            {"question": "?", "answers": [{"text": "cats", "answer_start": 5}]},
            "answer outside its context",
            "'cats' at 5 is outside its context of 8 letters",
        ),
        (
            {"question": "?", "answers": [{"text": "cat", "answer_start": True}]},
            "answer outside its context",
            "'cat' at True is outside its context of 8 letters",
        ),
        (
            {"question": "?", "answers": [{"text": "cats", "answer_start": 0}]},
            "answer not at its place",
            "'cats' does not stand at 0: 'two ' does",
        ),
    ],
)
def test_bad_questions(question: Any, kind: str, sentence: str, tmp_path: Path) -> None:
    report = Report()
    source = make_source(squad(tmp_path, question))
    assert list(read(source, tmp_path, report=report)) == []
    assert report.bad == {kind: 1}
    assert report.examples[0].startswith(f"q.json: question 1: {sentence}")
    with pytest.raises(DataError, match=r"q\.json: question 1: .* \(data\.strict is on\)"):
        list(read(source, tmp_path, report=Report(strict=True)))


def test_what_is_not_in_the_layout_of_questions_is_told(tmp_path: Path) -> None:
    report = Report()
    source = squad(tmp_path, {"question": "?", "answers": []}, context=" ")
    assert list(read(make_source(source), tmp_path, report=report)) == []
    assert report.bad == {"empty context": 1}
    layout = "is not in SQuAD's layout"
    for contents, sentence in ((b"{}", layout), (b'{"data": 3}', layout), (b"\xff", "is not UTF-8 text")):
        write(tmp_path / "q.json", contents)
        with pytest.raises(DataError, match=rf"q\.json: .*{sentence}"):
            list(read(make_source(source), tmp_path))


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
    assert make_source(source).splits(tmp_path) == ("train", "valid", "test")
    assert pairs_of(source, tmp_path)[0] == [("a", "A")]
    assert pairs_of(source, tmp_path, "valid")[0] == [("b", "B")]
    assert pairs_of(source, tmp_path, "test")[0] == [("c", "C")]
    assert {path.name for path in make_source(source).files(tmp_path)} == {f"{name}{packed}" for name in files}


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
    assert make_source({"kind": "tsv", "train": "t", "test": "t"}).splits(tmp_path) == ("train", "test")
    with pytest.raises(DataError, match="no valid of its own"):
        pairs_of({"kind": "tsv", "train": "t"}, tmp_path, "valid")


def test_every_kind_of_source_says_what_it_is() -> None:
    for kind, source in SOURCES.items():
        options = source.model_fields
        assert options["kind"].is_required(), kind
        assert all(field.description for name, field in options.items() if name != "kind"), kind
        assert source.__doc__, kind
        assert not source.makes_splits or source(kind=kind).splits(Path()) == SPLITS


def test_files_are_those_of_all_splits(tmp_path: Path) -> None:
    tables = make_source({"kind": "tsv", "train": "a", "test": "b"})
    assert tables.files(tmp_path) == [tmp_path / "a", tmp_path / "b"]
    aligned = make_source({"kind": "aligned", "train": ["a", "b"], "valid": ["c", "d"]})
    assert aligned.files(tmp_path) == [tmp_path / name for name in "abcd"]
    text = make_source({"kind": "text", "train": ["a", "b"], "valid": "c"})
    assert text.files(tmp_path) == [tmp_path / name for name in "abc"]
    assert (text.splits(tmp_path), aligned.splits(tmp_path)) == (("train", "valid"), ("train", "valid"))
