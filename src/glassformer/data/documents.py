"""Documents: texts by themselves, from files cut into paragraphs, lines or stretches, or a file each."""

from __future__ import annotations

import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

from glassformer.data.files import Row, decoded, opened
from glassformer.data.report import Report
from glassformer.errors import DataError

Line = tuple[int, str]  # its number, and what it says
STRETCH = 5_000  # characters in a stretch at least, where there are so many
TESTS = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"}  # folders that are left out


def document_rows(path: Path, name: str, kind: str, report: Report, strict: bool) -> Iterator[Row]:
    """The documents of a file, each with an empty target, and the line it begins in for a place."""
    with opened(path) as file:
        data = file.read().removeprefix(b"\xef\xbb\xbf")
    text = decoded(data, name, report, strict)
    if text is None:
        return
    text = text.replace("\r\n", "\n")
    if kind == "file":
        yield text, "", name
        return
    lines = enumerate(text.split("\n"), start=1)
    pieces = ([each] for each in lines) if kind == "line" else _stretches(lines, STRETCH if kind == "stretch" else 1)
    for piece in pieces:
        document = "\n".join(line for _, line in piece).strip("\n")
        if document.strip():
            yield document, "", f"{name}:{next(number for number, line in piece if line)}"


def _stretches(lines: Iterable[Line], least: int) -> Iterator[list[Line]]:
    """Lines up to the first blank one after at least so many characters, again and again."""
    begun: list[Line] = []
    for line in lines:
        begun.append(line)
        if not line[1].strip() and sum(len(text) for _, text in begun) >= least:
            yield begun
            begun = []
    yield begun


def matching(folder: Path, pattern: str) -> list[Path]:
    """The files of a folder that a pattern such as `**/*.txt` names, in the order of their names."""
    if not folder.is_dir():
        raise DataError(f"{folder}: is not a folder")
    try:
        paths = sorted(path for path in folder.glob(pattern) if path.is_file())
    except (ValueError, NotImplementedError) as error:
        raise DataError(f"source.pattern is {pattern!r}, which names no files: {error}") from None
    if not paths:
        raise DataError(f"{folder}: holds no file that matches {pattern}")
    return paths


def library() -> list[Path]:
    """The files of Python's standard library, without its tests and what else was installed."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    paths = [path for path in matching(folder, "**/*.py") if not TESTS & set(path.relative_to(folder).parts)]
    return [path for path in paths if not path.name.startswith("test_")]


def file_rows(paths: Iterable[Path], report: Report, strict: bool) -> Iterator[Row]:
    """Each file, a document."""
    for path in paths:
        yield from document_rows(path, str(path), "file", report, strict)
