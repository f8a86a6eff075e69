"""Files of text, plain or packed: the rows of a table, one object a line, or two files side by side."""

from __future__ import annotations

import gzip
import json
import lzma
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice, zip_longest
from pathlib import Path
from typing import IO, Any

from glassformer.data.report import Report
from glassformer.errors import DataError

Row = tuple[str, str, str]  # source, target, place
BETWEEN = "\ufdd0"  # stands between two texts that are read together; no character, so that no text has it


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
                line, first = line.removeprefix(b"\xef\xbb\xbf"), False
            yield line.rstrip(b"\r\n")


def decoded(line: bytes, place: str, report: Report, strict: bool) -> str | None:
    """A line as text; None if it is not UTF-8."""
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        what = f"byte {error.start + 1} (0x{line[error.start]:02x}) is not UTF-8"
        report.add_bad("invalid UTF-8", place, what, strict)
        return None


def table_rows(
    path: Path, name: str, columns: tuple[int, ...], report: Report, strict: bool, header: bool = False
) -> Iterator[Row]:
    """Columns of a tab-separated table; the last one is the target. A `header` is no row."""
    least = max(columns) + 1
    for number, line in islice(enumerate(lines(path), 1), int(header), None):
        place = f"{name}:{number}"
        text = decoded(line, place, report, strict)
        if text is None:
            continue
        cells = text.split("\t")
        if len(cells) < least:
            what = f"{len(cells)} column{'s' * (len(cells) > 1)}, at least {least} expected"
            report.add_bad("wrong column count", place, what, strict)
            continue
        *sources, target = [cells[column] for column in columns]
        yield BETWEEN.join(sources), target, place


def aligned_rows(paths: tuple[Path, Path], names: tuple[str, str], report: Report, strict: bool) -> Iterator[Row]:
    """The n-th lines of two files."""
    counts = [0, 0]
    for pair in zip_longest(lines(paths[0]), lines(paths[1])):
        counts = [count + (line is not None) for count, line in zip(counts, pair, strict=True)]
        if None in pair:
            continue  # to the end, to count both
        texts = []
        for line, name in zip(pair, names, strict=True):
            text = decoded(line, f"{name}:{counts[0]}", report, strict)
            if text is None:
                break
            texts.append(text)
        else:
            yield texts[0], texts[1], f"{names[0]}:{counts[0]}"
    if counts[0] != counts[1]:
        raise DataError(f"{names[0]} has {counts[0]:,} lines but {names[1]} has {counts[1]:,}: they are not aligned")


def object_rows(path: Path, name: str, fields: tuple[str, ...], report: Report, strict: bool) -> Iterator[Row]:
    """Fields of a JSON object a line, the last one the target; a list of sentences is a text."""
    for number, line in enumerate(lines(path), 1):
        place = f"{name}:{number}"
        text = decoded(line, place, report, strict)
        if text is None:
            continue
        try:
            value = json.loads(text)
        except (json.JSONDecodeError, RecursionError):
            report.add_bad("not JSON", place, "is not a JSON object", strict)
            continue
        sides = [_joined(look_up(value, field)) for field in fields]
        missing = [field for field, side in zip(fields, sides, strict=True) if not isinstance(side, str | int)]
        if missing:
            report.add_bad("missing field", place, f"has no text under {missing[0]}", strict)
            continue
        *sources, target = map(str, sides)
        yield BETWEEN.join(sources), target, place


def look_up(value: Any, field: str) -> Any:
    """A field of an object by its name, or by its path: `translation.en`, `summaries.0`; None if there is none."""
    if isinstance(value, dict) and field in value:
        return value[field]
    for name in field.split("."):
        if isinstance(value, list) and name.isdecimal():
            value = dict(enumerate(value)).get(int(name))
        else:
            value = value.get(name) if isinstance(value, dict) else None
    return value


def _joined(value: Any) -> Any:
    """A list of sentences as one text; anything else as it is."""
    sentences = isinstance(value, list) and all(isinstance(each, str) for each in value)
    return " ".join(value) if sentences else value
