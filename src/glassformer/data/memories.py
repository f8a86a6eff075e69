"""Translation memories: gettext catalogues (.po) and TMX files, in which translators keep their work."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from xml.parsers import expat  # entities, the one danger, are refused below

from glassformer.data.files import Row, decoded, lines, opened
from glassformer.data.report import Report
from glassformer.errors import DataError

KEYWORD = re.compile(r'(msgctxt|msgid|msgid_plural|msgstr(?:\[\d+\])?)\s+"(.*)"$')
ESCAPE = re.compile(r"\\(.)")
LETTERS = {"n": "\n", "t": "\t", "r": "\r"}
CODES = {"bpt", "ept", "ph", "it", "ut"}  # TMX elements that hold a program's marks, not text


def catalogue_rows(path: Path, name: str, report: Report, strict: bool) -> Iterator[Row]:
    """The messages of a gettext catalogue; those not translated, or only guessed (fuzzy), are dropped and counted."""
    entry: dict[str, str] = {}
    key, start, fuzzy = "", 0, False
    for number, line in enumerate(_with_end(path), 1):
        place = f"{name}:{number}"
        read = decoded(line, place, report, strict)
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
            report.add_bad("not gettext", place, "translates no message", strict)
            entry = {}
        elif found:
            key, start = found[1], start if entry else number
            entry[key] = _unescaped(found[2])
        elif goes_on:
            entry[key] += _unescaped(text[1:-1])
        elif text.startswith("#,"):
            fuzzy = "fuzzy" in text
        elif text and not text.startswith("#"):
            report.add_bad("not gettext", place, "is neither a message nor a comment", strict)


def _with_end(path: Path) -> Iterator[bytes]:
    yield from lines(path)
    yield b""


def _messages(entry: dict[str, str], fuzzy: bool, place: str, report: Report) -> Iterator[Row]:
    """The pairs of an entry: one, or two where there is a plural."""
    sides = [("msgid", "msgstr"), ("msgid", "msgstr[0]"), ("msgid_plural", "msgstr[1]")]
    for source, target in sides:
        if not entry.get(source) or target not in entry:  # the header has an empty message
            continue
        if fuzzy or not entry[target]:
            report.read += 1
            report.dropped["fuzzy" if fuzzy else "untranslated"] += 1
        else:
            yield entry[source], entry[target], place


def _unescaped(text: str) -> str:
    return ESCAPE.sub(lambda found: LETTERS.get(found[1], found[1]), text)


def memory_rows(path: Path, name: str, languages: tuple[str, str], report: Report, strict: bool) -> Iterator[Row]:
    """The units of a TMX file in two languages; `en` also stands for `en-GB`."""
    reader = _MemoryReader(name)
    try:
        with opened(path) as file:
            while block := file.read(1 << 16):
                reader.parser.Parse(block, False)
                yield from _units(reader, languages, report, strict)
            reader.parser.Parse(b"", True)
            yield from _units(reader, languages, report, strict)
    except expat.ExpatError as error:
        raise DataError(f"{name}:{error.lineno}: is not well-formed XML: {expat.ErrorString(error.code)}") from None


def _units(reader: _MemoryReader, languages: tuple[str, str], report: Report, strict: bool) -> Iterator[Row]:
    for line, unit in reader.units:
        sides = [_variant(unit, language) for language in languages]
        place = f"{reader.name}:{line}"
        if sides[0] is None or sides[1] is None:
            missing = languages[0 if sides[0] is None else 1]
            report.add_bad("missing language", place, f"the unit has no {missing}", strict)
        else:
            yield sides[0], sides[1], place
    reader.units.clear()


def _variant(unit: dict[str, str], language: str) -> str | None:
    wanted = language.lower().replace("_", "-")
    near = (text for code, text in unit.items() if code.startswith(f"{wanted}-"))
    return unit.get(wanted, next(near, None))


class _MemoryReader:
    """Collects the units of a TMX file as its XML is parsed, in `units`: a line and the texts by language."""

    def __init__(self, name: str) -> None:
        self.name, self.units = name, list[tuple[int, dict[str, str]]]()
        self._unit: dict[str, str] = {}
        self._line, self._language, self._text = 0, "", list[str]()
        self._inside, self._codes = False, 0
        self.parser = expat.ParserCreate()
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._characters
        self.parser.EntityDeclHandler = self._entity

    def _entity(self, *_: object) -> None:
        place = f"{self.name}:{self.parser.CurrentLineNumber}"
        raise DataError(f"{place}: declares an XML entity, which a translation memory has no need of: refused")

    def _start(self, element: str, attributes: dict[str, str]) -> None:
        if element == "tu":
            self._unit, self._line = {}, self.parser.CurrentLineNumber
        elif element == "tuv":
            self._language = attributes.get("xml:lang", attributes.get("lang", "")).lower().replace("_", "-")
        elif element == "seg":
            self._inside, self._text = True, []
        elif element in CODES:
            self._codes += 1

    def _end(self, element: str) -> None:
        if element == "tu":
            self.units.append((self._line, self._unit))
        elif element == "seg":
            self._inside = False
            self._unit[self._language] = "".join(self._text)
        elif element in CODES:
            self._codes -= 1

    def _characters(self, text: str) -> None:
        if self._inside and not self._codes:
            self._text.append(text)
