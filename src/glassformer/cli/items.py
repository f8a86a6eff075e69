"""Items: the texts that a command is given, as arguments, as lines of files, or as lines of standard input."""

from __future__ import annotations

import codecs
import shlex
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from glassformer.errors import ConfigurationError, InputError

PORTION = 4096  # items that are read and worked on together
LONGEST_NAME = 256  # characters: no file has a longer name


@dataclass(frozen=True)
class Item:
    """A text that was given, its number in the input, and its place, for messages."""

    text: str | None  # None: it is not UTF-8
    number: int
    place: str  # "standard input:3"; empty if there is only one text


def items_of(texts: list[str] | None, files: list[str] | None) -> Iterator[Item]:
    """The items of a command: its TEXTs, or else the lines of its files, or of standard input."""
    if texts and files:
        raise ConfigurationError("give TEXT or --file, not both")
    if texts:
        several = len(texts) > 1
        return (Item(text, number, f"argument {number}" if several else "") for number, text in enumerate(texts, 1))
    lines = (line for file in files or ["-"] for line in numbered_lines(file))
    return (Item(text, number, place) for number, (place, text) in enumerate(lines, start=1))


def numbered_lines(file: str) -> Iterator[tuple[str, str | None]]:
    """The lines of a file, plain or packed, or of standard input ("-"), each with its place; only a line feed ends one.

    A line that is not UTF-8 is None; if it is the first, the file is taken for no text at all, and refused.
    """
    from glassformer.data.textfiles import LONGEST, opened

    name = "standard input" if file == "-" else file
    try:
        with nullcontext(sys.stdin.buffer) if file == "-" else opened(Path(file)) as lines:
            for number, line in enumerate(iter(lambda: lines.readline(LONGEST + 1), b""), start=1):
                if len(line) > LONGEST:
                    raise InputError(f"{name}:{number}: has more than {LONGEST:,} bytes: cut it into several lines")
                plain = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
                try:
                    yield f"{name}:{number}", plain.decode("utf-8").removesuffix("\n").removesuffix("\r")
                except UnicodeDecodeError:
                    if number == 1:
                        raise InputError(f"{name}:1: is not UTF-8 text") from None
                    yield f"{name}:{number}", None
    except OSError as error:
        raise InputError(f"{name}: cannot be read: {error.strerror}") from None


def read_lines(file: str) -> Iterator[str]:
    """The lines of a file or of standard input, all of which must be UTF-8."""
    for place, line in numbered_lines(file):
        if line is None:
            raise InputError(f"{place}: is not UTF-8 text")
        yield line


def portions(items: Iterator[Item]) -> Iterator[list[Item]]:
    """Some items at a time: an input of any length, or without end, gives its first answers early.

    Where the input cannot be read any further, what was read before comes first, and then the error.
    """
    broken: InputError | None = None
    while broken is None:
        portion: list[Item] = []
        try:
            for item in islice(items, PORTION):
                portion.append(item)  # those before an error stay
        except InputError as error:
            broken = error
        if portion:
            yield portion
        elif broken is None:
            return
    raise broken


def notice_files(texts: list[str] | None) -> None:
    """Say of a TEXT that is the name of a file how to read that file."""
    for text in texts or ():
        if len(text) < LONGEST_NAME and Path(text).is_file():
            notice(f"{text} is used as a text: to read the file of this name, write --file {shlex.quote(text)}")


def notice_cut(places: list[str], limit: int) -> None:
    """Say that of the texts at some places only the beginning was read."""
    if places:
        more = f" and {len(places) - 1:,} more" if len(places) > 1 else ""
        what = f"longer than the {limit:,} tokens that the model reads: what comes after them is left out"
        notice(f"{places[0] or 'the text'}{more}: {what}")


def notice(line: str) -> None:
    """A line on stderr."""
    sys.stderr.write(f"glassformer: {line}\n")
