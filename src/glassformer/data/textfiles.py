"""Files of text, plain or packed, in UTF-8, UTF-16 or UTF-32: their bytes, their lines, and the fields of objects.

Nothing is read whole: a line has at most LONGEST characters. What is no text is refused early: an archive that unpacks
to too much, a file of blank lines.
"""

from __future__ import annotations

import codecs
import gzip
import io
import lzma
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any

from glassformer.data.examples import BadRow
from glassformer.data.report import Report
from glassformer.errors import DataError
from glassformer.files import check_file

LONGEST = 1 << 20  # characters in a text: a tokenizer needs some 150 bytes of memory for each
PACKED: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"\xfd7zXZ\x00": lzma.open}  # by the first bytes of a file
UNPACKED, LEAST_UNPACKED = 100, 1 << 24  # how many times its size an archive may unpack to, or how many bytes
MOST_BLANK = 1_000_000  # blank lines one after the other
SAMPLE = 4096  # bytes by which an encoding is recognised
BLANK = frozenset(("\n", "\r\n"))
CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f]")
MARKS = {  # the byte order marks that some programs write at the start of a file; the longer ones first
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}


@contextmanager
def opened(path: Path) -> Iterator[io.BufferedReader]:
    """A file's bytes, unpacked if its first bytes say that it is gzip or xz."""
    size = check_file(path).st_size
    try:
        with path.open("rb") as plain:
            unpack = next((unpack for start, unpack in PACKED.items() if plain.peek(6).startswith(start)), None)
            yield plain if unpack is None else io.BufferedReader(_Unpacked(unpack(plain), path, size), 1 << 16)
    except (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error) as error:
        raise DataError(f"{path}: is a damaged or unfinished archive: {error}") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None


class _Unpacked(io.RawIOBase):
    """The contents of an archive, as far as they are in proportion to its size."""

    def __init__(self, archive: IO[bytes], path: Path, size: int) -> None:
        self._archive, self._path, self._left = archive, path, max(UNPACKED * size, LEAST_UNPACKED)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._archive.read(len(buffer))
        self._left -= len(data)
        if self._left < 0:
            what = f"unpacks to more than {UNPACKED} times its size, as no text does"
            raise DataError(f"{self._path}: {what}: unpack it first if it is one")
        buffer[: len(data)] = data
        return len(data)


def encoding_of(start: bytes) -> tuple[str, int]:
    """The encoding of a text that starts with these bytes, and how many of them are a byte order mark.

    Without a mark, text of two or four bytes a character shows itself: it has NULs, and read rightly it has no control
    characters, and spaces and line ends where their bytes are.
    """
    for mark, encoding in MARKS.items():
        if start.startswith(mark):
            return encoding, len(mark)
    found = {0: "utf-8"}
    for encoding in list(MARKS.values())[1:] if b"\0" in start else ():
        text = codecs.getincrementaldecoder(encoding)("replace").decode(start)
        blanks = text.count(" ") + text.count("\n")
        if 2 * blanks >= start.count(b" ") + start.count(b"\n") and "�" not in text and not CONTROL.search(text):
            found.setdefault(blanks, encoding)
    return found[max(found)], 0


@contextmanager
def opened_text(path: Path, report: Report) -> Iterator[io.TextIOWrapper]:
    """A file as text, in which bytes that are not UTF-8 are half surrogate pairs; `checked` tells them."""
    with opened(path) as file:
        encoding, mark = encoding_of(file.peek(SAMPLE)[:SAMPLE])
        file.read(mark)
        if encoding != "utf-8":
            report.note(f"{path.name} is {encoding[:6].upper()}, not UTF-8, and was read as that")
        yield io.TextIOWrapper(file, encoding, "surrogateescape" if encoding == "utf-8" else "replace", newline="\n")


def checked(text: str) -> str | BadRow:
    """The text; if it has bytes that are not UTF-8 or half a character, what is wrong with it."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        byte = ord(text[error.start]) - 0xDC00
        if 0x80 <= byte <= 0xFF:
            what = f"byte {len(text[: error.start].encode()) + 1} (0x{byte:02x}) is not UTF-8"
            return BadRow("invalid UTF-8", what)
        return BadRow("invalid Unicode", "contains half a surrogate pair, which is no character")
    return text


def lines(path: Path, report: Report) -> Iterator[str | BadRow]:
    """The lines of a file, without their ends; for one that is too long or no text, what is wrong with it."""
    blank = 0
    with opened_text(path, report) as file:
        while line := file.readline(LONGEST + 1):
            blank = blank + 1 if line in BLANK else 0
            if blank > MOST_BLANK:
                raise DataError(f"{path}: has more than {MOST_BLANK:,} blank lines one after the other, as no text has")
            if len(line) > LONGEST and not line.endswith("\n"):
                while (rest := file.readline(LONGEST)) and not rest.endswith("\n"):
                    pass
                yield BadRow("line too long", f"has more than {LONGEST:,} characters")
            else:
                yield checked(line.rstrip("\r\n"))


def first_lines(path: Path, most: int) -> list[str]:
    """Some lines at the start of a file, without those that are blank or no text."""
    found = (line for line in islice(lines(path, Report()), most) if isinstance(line, str) and line.strip())
    return list(found)


def counted(text: str | BadRow, place: str, report: Report) -> str | None:
    """A text; None, and a bad row in the report, if it is none."""
    if isinstance(text, str):
        return text
    report.add_bad(text.kind, place, str(text))
    return None


def texts(path: Path, name: str, report: Report, skip: int = 0) -> Iterator[tuple[str, str]]:
    """The place and the text of each line after the first `skip`; one that is no text is a bad row."""
    for number, line in islice(enumerate(lines(path, report), 1), skip, None):
        place = f"{name}:{number}"
        if (text := counted(line, place, report)) is not None:
            yield place, text


def look_up(value: Any, field: str) -> Any:
    """A field of an object by its name, or by its path: `translation.en`, `summaries.0`; None if it has none."""
    if isinstance(value, dict) and field in value:
        return value[field]
    for name in field.split("."):
        if isinstance(value, list) and name.isdecimal() and len(name) < 10:
            value = value[int(name)] if int(name) < len(value) else None
        else:
            value = value.get(name) if isinstance(value, dict) else None
    return value
