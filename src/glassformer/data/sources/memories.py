"""Translation memories: gettext catalogues (.po) and TMX files, in which translators keep their work."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Literal
from xml.parsers import expat  # entities, the one danger, are refused below

from pydantic import Field

from glassformer.data.examples import Columns
from glassformer.data.report import Report
from glassformer.data.source import FileSource, Found, Split
from glassformer.data.textfiles import LONGEST, counted, first_lines, lines, opened
from glassformer.errors import DataError

KEYWORD = re.compile(r'(msgctxt|msgid|msgid_plural|msgstr(?:\[\d+\])?)\s+"(.*)"$')
ESCAPE = re.compile(r"\\(.)")
LETTERS = {"n": "\n", "t": "\t", "r": "\r"}
SIDES = (("msgid", "msgstr"), ("msgid", "msgstr[0]"), ("msgid_plural", "msgstr[1]"))  # source, target
LANGUAGE, LOOKED_AT = re.compile(r'<tuv[^>]*?\blang="([\w-]+)"'), 1_000
CODES = {"bpt", "ept", "ph", "it", "ut"}  # TMX elements that hold a program's marks, not text


class PoSource(FileSource):
    """A gettext catalogue: msgid to msgstr."""

    endings = (".po",)
    kind: Literal["po"]

    def read(self, split: Split, base: Path, report: Report) -> Iterator[Found]:
        """The messages; those without a translation, or with a guessed (fuzzy) one, are dropped and counted."""
        name: str = getattr(self, split)
        entry: dict[str, list[str]] = {}
        key, start, fuzzy = "", 0, False
        for number, line in enumerate(chain(lines(base / name, report), [""]), 1):  # a blank line ends the last message
            place = f"{name}:{number}"
            read = counted(line, place, report)
            if read is None:  # half a message would be worse than none
                entry, fuzzy = {}, False
                continue
            text = read.strip()
            found = KEYWORD.match(text)
            goes_on = text.startswith('"') and text.endswith('"') and len(text) > 1 and bool(entry)
            ends = found[1] in ("msgctxt", "msgid") and "msgid" in entry if found else not goes_on
            if ends and entry:
                yield from _messages(entry, fuzzy, f"{name}:{start}", report)
                entry, fuzzy = {}, False
            if found and found[1].startswith("msgstr") and ("msgid" not in entry or found[1] in entry):
                report.add_bad("not gettext", place, "translates no message")
                entry = {}
            elif found:
                key, start = found[1], start if entry else number
                entry[key] = [found[2]]
            elif goes_on:
                entry[key].append(text[1:-1])
            elif text.startswith("#,"):
                fuzzy = "fuzzy" in text
            elif text and not text.startswith("#"):
                report.add_bad("not gettext", place, "is neither a message nor a comment")


def _messages(parts: dict[str, list[str]], fuzzy: bool, place: str, report: Report) -> Iterator[Found]:
    """The examples of an entry: one, or two if the message has a plural."""
    entry = {key: "".join(map(_unescaped, texts)) for key, texts in parts.items()}
    for source, target in SIDES:
        if not entry.get(source) or target not in entry:  # the header has an empty message
            continue
        if fuzzy or not entry[target]:
            report.read += 1
            report.dropped["fuzzy" if fuzzy else "untranslated"] += 1
        else:
            yield Columns((entry[source], entry[target])), place


def _unescaped(text: str) -> str:
    return ESCAPE.sub(lambda found: LETTERS.get(found[1], found[1]), text)


class TmxSource(FileSource):
    """A TMX translation memory."""

    endings = (".tmx",)
    kind: Literal["tmx"]
    languages: tuple[str, str] = Field(description="the codes of source and target, as in the file")

    @classmethod
    def recognised(cls, paths: Sequence[Path]) -> dict[str, Any] | None:
        """The first two languages of the file."""
        found = super().recognised(paths)
        codes = [] if found is None else LANGUAGE.findall(" ".join(first_lines(paths[0], LOOKED_AT)))
        return None if found is None or len({*codes}) < 2 else found | {"languages": [*dict.fromkeys(codes)][:2]}

    def read(self, split: Split, base: Path, report: Report) -> Iterator[Found]:
        """The units in both languages; the code `en` also finds `en-GB`."""
        name: str = getattr(self, split)
        parser = _UnitParser(name)
        try:
            with opened(base / name) as file:
                while block := file.read(1 << 16):
                    yield from self._examples(parser.fed(block), name, report)
                yield from self._examples(parser.fed(b"", last=True), name, report)
        except expat.ExpatError as error:
            raise DataError(f"{name}:{error.lineno}: is not well-formed XML: {expat.ErrorString(error.code)}") from None

    def _examples(self, units: list[tuple[int, dict[str, str]]], name: str, report: Report) -> Iterator[Found]:
        for line, unit in units:
            texts = [_variant(unit, language) for language in self.languages]
            if None in texts:
                what = f"the unit has no {self.languages[texts.index(None)]}"
                report.add_bad("missing language", f"{name}:{line}", what)
            else:
                yield Columns(tuple(map(str, texts))), f"{name}:{line}"


def _variant(unit: dict[str, str], language: str) -> str | None:
    wanted = _code(language)
    near = (text for code, text in unit.items() if code.startswith(f"{wanted}-"))
    return unit.get(wanted, next(near, None))


def _code(language: str) -> str:
    return language.lower().replace("_", "-")


class _UnitParser:
    """Collects the units of a TMX file while its XML is parsed: the line of each, and its texts by language."""

    def __init__(self, name: str) -> None:
        self._name, self._units = name, list[tuple[int, dict[str, str]]]()
        self._unit: dict[str, str] = {}
        self._line, self._language, self._text = 0, "", list[str]()
        self._inside, self._codes, self._size = False, 0, 0
        self._parser = expat.ParserCreate()
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._characters
        self._parser.EntityDeclHandler = self._entity

    def fed(self, block: bytes, last: bool = False) -> list[tuple[int, dict[str, str]]]:
        """The units that end in this block."""
        self._units = []
        self._parser.Parse(block, last)
        return self._units

    def _entity(self, *_: object) -> None:
        place = f"{self._name}:{self._parser.CurrentLineNumber}"
        raise DataError(f"{place}: declares an XML entity: refused, because a translation memory needs none")

    def _start(self, element: str, attributes: dict[str, str]) -> None:
        if element == "tu":
            self._unit, self._line = {}, self._parser.CurrentLineNumber
        elif element == "tuv":
            self._language = _code(attributes.get("xml:lang", attributes.get("lang", "")))
        elif element == "seg":
            self._inside, self._text, self._size = True, [], 0
        elif element in CODES:
            self._codes += 1

    def _end(self, element: str) -> None:
        if element == "tu":
            self._units.append((self._line, self._unit))
        elif element == "seg":
            self._inside = False
            self._unit[self._language] = "".join(self._text)
        elif element in CODES:
            self._codes -= 1

    def _characters(self, text: str) -> None:
        if self._inside and not self._codes and self._size <= LONGEST:  # one that is longer will be refused
            self._text.append(text)
            self._size += len(text)
