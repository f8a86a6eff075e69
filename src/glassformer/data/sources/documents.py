"""Sources of documents: texts without targets, from files cut into paragraphs, lines or pages, or one per file."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from glassformer.data.examples import Document
from glassformer.data.report import Report
from glassformer.data.source import FileSource, Found, Source, Split
from glassformer.data.textfiles import MARK, decoded, opened
from glassformer.errors import DataError

Line = tuple[int, str]  # its number, and its text
Names = str | tuple[str, ...]
STRETCH = 5_000  # the least number of characters in a stretch, unless the file ends
TESTS = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"}  # folders that are left out


class TextSource(FileSource):
    """Texts without targets, from files, for the tasks that learn from documents."""

    gives = Document
    kind: Literal["text"]
    train: Names = Field(description="the training file, or a list of files (plain, .gz or .xz)")  # type: ignore[assignment]
    valid: Names | None = Field(None, description="for validation; missing: split off by content hash")  # type: ignore[assignment]
    test: Names | None = Field(None, description="for testing; missing: split off by content hash")  # type: ignore[assignment]
    documents: Literal["paragraph", "line", "stretch", "file"] = Field(
        "paragraph",
        description="what a document is; a blank line ends a paragraph; a stretch is several paragraphs, a few pages",
    )

    def read(self, split: Split, base: Path, report: Report) -> Iterator[Found]:
        """The documents of each file."""
        names: Names = getattr(self, split)
        for name in (names,) if isinstance(names, str) else names:
            yield from _documents(base / name, name, self.documents, report)


class FilesSource(Source):
    """All files of a folder and of the folders in it; each is a document."""

    gives = Document
    kind: Literal["files"]
    path: str = Field(description="the folder")
    pattern: str = Field("**/*.txt", description="which files: * is any name, ** any folders")

    def read(self, split: Split, base: Path, report: Report) -> Iterator[Found]:
        """Each file."""
        return _whole_files(self.files(base), report)

    def files(self, base: Path) -> list[Path]:
        """Those that match the pattern."""
        return _matching(base / self.path, self.pattern)


class PythonSource(Source):
    """The standard library of the running Python, without its tests; each file is a document."""

    gives = Document
    kind: Literal["python"]

    def read(self, split: Split, base: Path, report: Report) -> Iterator[Found]:
        """Each file."""
        return _whole_files(library(), report)

    def versions(self, base: Path) -> dict[str, Any]:
        """Python's."""
        return {"python": sys.version}


def library() -> list[Path]:
    """The files of Python's standard library, without its tests and without installed packages."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    paths = [path for path in _matching(folder, "**/*.py") if not TESTS & set(path.relative_to(folder).parts)]
    return [path for path in paths if not path.name.startswith("test_")]


def _matching(folder: Path, pattern: str) -> list[Path]:
    """The files of a folder that match a pattern such as `**/*.txt`, sorted by name."""
    if not folder.is_dir():
        raise DataError(f"{folder}: is not a folder")
    try:
        paths = sorted(path for path in folder.glob(pattern) if path.is_file())
    except (ValueError, NotImplementedError) as error:
        raise DataError(f"source.pattern is {pattern!r}, which names no files: {error}") from None
    if not paths:
        raise DataError(f"{folder}: holds no file that matches {pattern}")
    return paths


def _whole_files(paths: Iterable[Path], report: Report) -> Iterator[Found]:
    for path in paths:
        yield from _documents(path, str(path), "file", report)


def _documents(path: Path, name: str, kind: str, report: Report) -> Iterator[Found]:
    """The documents of a file; the place of each is its first line."""
    with opened(path) as file:
        data = file.read().removeprefix(MARK)
    text = decoded(data, name, report)
    if text is None:
        return
    text = text.replace("\r\n", "\n")
    if kind == "file":
        yield Document(text), name
        return
    lines = enumerate(text.split("\n"), start=1)
    pieces = ([each] for each in lines) if kind == "line" else _stretches(lines, STRETCH if kind == "stretch" else 1)
    for piece in pieces:
        document = "\n".join(line for _, line in piece).strip("\n")
        if document.strip():
            yield Document(document), f"{name}:{next(number for number, line in piece if line)}"


def _stretches(lines: Iterable[Line], least: int) -> Iterator[list[Line]]:
    """Groups of lines: each ends with the first blank line after at least so many characters, or with the last line."""
    group, size = list[Line](), 0
    for number, text in lines:
        group.append((number, text))
        size += len(text)
        if size >= least and not text.strip():
            yield group
            group, size = [], 0
    yield group
