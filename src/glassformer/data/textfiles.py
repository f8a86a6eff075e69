"""Files of text, plain or packed: their bytes, their lines, and the fields of objects in them."""

from __future__ import annotations

import gzip
import lzma
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from glassformer.data.report import Report
from glassformer.errors import DataError

MARK = b"\xef\xbb\xbf"  # the byte order mark that some programs write at the start of a file


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """A file's bytes, unpacked if its first bytes say that it is gzip or xz."""
    try:
        with path.open("rb") as plain:
            start = plain.read(6)
            plain.seek(0)
            if start.startswith(b"\x1f\x8b"):
                with gzip.open(plain) as unpacked:
                    yield unpacked  # type: ignore[misc]  # a GzipFile reads like any file
            elif start == b"\xfd7zXZ\x00":
                with lzma.open(plain) as unpacked:
                    yield unpacked
            else:
                yield plain
    except (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error) as error:
        raise DataError(f"{path}: is a damaged or unfinished archive: {error}") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None


def lines(path: Path) -> Iterator[bytes]:
    """The lines of a file, without their ends and without a byte order mark."""
    with opened(path) as file:
        first = True
        for line in file:
            if first:
                line, first = line.removeprefix(MARK), False
            yield line.rstrip(b"\r\n")


def decoded(line: bytes, place: str, report: Report) -> str | None:
    """A line as text; None, and a bad row in the report, if it is not UTF-8."""
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        what = f"byte {error.start + 1} (0x{line[error.start]:02x}) is not UTF-8"
        report.add_bad("invalid UTF-8", place, what)
        return None


def look_up(value: Any, field: str) -> Any:
    """A field of an object by its name, or by its path: `translation.en`, `summaries.0`; None if it has none."""
    if isinstance(value, dict) and field in value:
        return value[field]
    for name in field.split("."):
        if isinstance(value, list) and name.isdecimal():
            value = value[int(name)] if int(name) < len(value) else None
        else:
            value = value.get(name) if isinstance(value, dict) else None
    return value
