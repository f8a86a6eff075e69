"""The texts that an index is made of: the paragraphs, lines or files of text files and of folders of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from glassformer.data import Report
from glassformer.data.sources.documents import TextSource
from glassformer.errors import ConfigurationError, InputError

BY = ("paragraph", "line", "file")
ENDINGS = TextSource.endings
PACKED = (".gz", ".xz")


class Passage(NamedTuple):
    """A text, and where it stands: a file, and the number of its first line."""

    text: str
    place: str


def passages(paths: Sequence[Path], by: str = "paragraph") -> list[Passage]:
    """The texts of files, and of all text files in folders and their folders, in the order of their names."""
    if by not in BY:
        raise ConfigurationError(f'--by is "{by}": expected {", ".join(BY)}')
    files = [str(file) for path in paths for file in _files(path)]
    report = Report()
    source = TextSource.model_validate({"kind": "text", "train": tuple(files), "documents": by})
    found = [
        Passage(example[0], place) for example, place in source.read("train", Path(), report) if example[0].strip()
    ]
    if report.examples:
        raise InputError(report.examples[0])
    if not found:
        raise InputError(f"there is nothing to index: no text in {', '.join(map(str, paths))}")
    return found


def _files(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    found = sorted(file for file in path.rglob("*") if file.is_file() and _is_text(file))
    if not found:
        raise InputError(f"{path}: holds no text file: expected names that end with {', '.join(ENDINGS)}")
    yield from found


def _is_text(file: Path) -> bool:
    name = file.name.removesuffix(file.suffix) if file.suffix in PACKED else file.name
    return name.endswith(ENDINGS)
