"""Sources of documents: texts without targets, from files cut into paragraphs, lines or pages, or one per file."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Literal

from pydantic import Field

from glassformer.data.examples import Document
from glassformer.data.report import Report
from glassformer.data.source import FileSource, Found, Source, Split
from glassformer.data.sources.files import TsvSource
from glassformer.data.textfiles import LONGEST, checked, counted, opened_text
from glassformer.errors import DataError
from glassformer.files import check_folder

Names = str | tuple[str, ...]
LOOKED_AT = 1 << 16  # characters of a file, to see what it is
STRETCH = 5_000  # the least number of characters in a stretch, unless the file ends
TESTS = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"}  # folders that are left out


class TextSource(FileSource):
    """Texts without targets, from files, for the tasks that learn from documents."""

    gives = Document
    endings = (".txt", ".md", ".text")
    kind: Literal["text"]
    train: Names = Field(description="the training file, or a list of files (plain, .gz or .xz)")  # type: ignore[assignment]
    valid: Names | None = Field(None, description="for validation; missing: split off by content hash")  # type: ignore[assignment]
    test: Names | None = Field(None, description="for testing; missing: split off by content hash")  # type: ignore[assignment]
    documents: Literal["paragraph", "line", "stretch", "file"] = Field(
        "paragraph",
        description="what a document is; a blank line ends a paragraph; a stretch is several paragraphs, a few pages",
    )

    @classmethod
    def recognised(cls, paths: Sequence[Path]) -> dict[str, Any] | None:
        """A file that is no table; without blank lines, each line is a document."""
        found = super().recognised(paths)
        if found is None or TsvSource.recognised(paths) is not None:
            return None
        with opened_text(paths[0], Report()) as file:
            return found | ({} if "\n\n" in file.read(LOOKED_AT) else {"documents": "line"})

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

    @classmethod
    def recognised(cls, paths: Sequence[Path]) -> dict[str, Any] | None:
        """A folder that holds texts, and no folders."""
        texts = len(paths) == 1 and paths[0].is_dir() and any(paths[0].glob("*.txt"))
        return {"path": str(paths[0])} if texts and not any(each.is_dir() for each in paths[0].iterdir()) else None

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
    check_folder(folder)
    try:
        if ".." in Path(pattern).parts:
            raise ValueError("it leaves the folder")
        paths = sorted(path for path in folder.glob(pattern) if path.is_file())
    except (ValueError, NotImplementedError, OSError) as error:
        raise DataError(f"source.pattern is {pattern!r}, which names no files: {error}") from None
    if not paths:
        raise DataError(f"{folder}: holds no file that matches {pattern}")
    return paths


def _whole_files(paths: Iterable[Path], report: Report) -> Iterator[Found]:
    for path in paths:
        yield from _documents(path, str(path), "file", report)


def _documents(path: Path, name: str, kind: str, report: Report) -> Iterator[Found]:
    """The documents of a file, each with the place of its first line; one that is not UTF-8 is a bad row."""
    with opened_text(path, report) as file:
        for number, document in _groups(file, kind, report):
            place = name if kind == "file" else f"{name}:{number}"
            text = counted(checked(document if kind == "file" else document.strip("\n")), place, report)
            if text is not None and (kind == "file" or text.strip()):
                yield Document(text), place


def _groups(file: IO[str], kind: str, report: Report) -> Iterator[tuple[int, str]]:
    """Groups of lines, each with the number of its first line; one that would be too long is cut before a line.

    A group ends with the first blank line after so many characters as its kind says, or with the last line.
    """
    least = {"line": 0, "paragraph": 1, "stretch": STRETCH, "file": sys.maxsize}[kind]
    group, number, start, size, letters = list[str](), 1, 1, 0, 0
    while line := file.readline(LONGEST):
        if group and size + len(line) > LONGEST:
            report.changed["split"] += 1
            yield start, "".join(group)
            group = []
        if not group:
            start, size, letters = number, 0, 0
        if group or kind == "file" or line.strip("\r\n"):  # empty lines before a document are not of it
            group.append(line.replace("\r\n", "\n"))
        size, letters = size + len(line), letters + len(line.rstrip("\r\n"))
        if line.endswith("\n"):
            number += 1
            if letters >= least and (kind == "line" or not line.strip()):
                yield start, "".join(group)
                group = []
    yield start, "".join(group)
