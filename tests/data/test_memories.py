"""Translation memories: messages and units as translators wrote them, marks left out, traps refused."""

import gzip
from pathlib import Path

import pytest

from glassformer.errors import DataError

from .helpers import pairs_of

CATALOGUE = r'''# a comment
msgid ""
msgstr "Content-Type: text/plain; charset=UTF-8\n"

#: main.c:12
msgid "Open"
msgstr "Öffnen"
msgctxt "menu"
msgid "Say \"hello\"\tand "
"go\n"
msgstr ""
"Sag \"hallo\"\tund "
"geh\n"

#, fuzzy, c-format
msgid "Close %s"
msgstr "Öffne %s"

msgid "Quit"
msgstr ""

msgid "%d file"
msgid_plural "%d files"
msgstr[0] "%d Datei"
msgstr[1] "%d Dateien"

#~ msgid "gone"
#~ msgstr "weg"
nonsense
msgid "last"
msgstr "letzte"'''


def test_catalogues(tmp_path: Path) -> None:
    (tmp_path / "de.po.gz").write_bytes(gzip.compress(CATALOGUE.encode()))
    found, report = pairs_of({"kind": "po", "train": "de.po.gz"}, tmp_path)
    assert found == [
        ("Open", "Öffnen"),
        ('Say "hello"\tand go\n', 'Sag "hallo"\tund geh\n'),
        ("%d file", "%d Datei"),
        ("%d files", "%d Dateien"),
        ("last", "letzte"),
    ]
    assert report.dropped == {"fuzzy": 1, "untranslated": 1}
    assert report.examples == ["de.po.gz:29: is neither a message nor a comment"]
    with pytest.raises(DataError, match=r"de\.po\.gz:29"):
        pairs_of({"kind": "po", "train": "de.po.gz"}, tmp_path, strict=True)


def test_a_damaged_catalogue_gives_no_pair_that_is_none(tmp_path: Path) -> None:
    lines = ['msgid "a"', 'msgstr "b"', 'msgid "not ended', 'msgstr "x"', "", 'msgid "c"', 'msgstr "d"', 'msgstr "e"']
    lines += ["", 'msgid "f"', 'msgstr "g"', '"\xe9"', "", 'msgid "h"', 'msgstr "i"']
    (tmp_path / "de.po").write_bytes("\n".join(lines).encode("latin-1"))
    found, report = pairs_of({"kind": "po", "train": "de.po"}, tmp_path)
    assert found == [("a", "b"), ("h", "i")]
    assert report.examples == [
        "de.po:3: is neither a message nor a comment",
        "de.po:4: translates no message",
        "de.po:8: translates no message",
        "de.po:12: byte 2 (0xe9) is not UTF-8",
    ]


MEMORY = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header/><body>
<tu><tuv xml:lang="en-GB"><seg>a <bpt i="1">{b}</bpt>big<ept i="1">{/b}</ept> cat &amp; a <hi>dog</hi></seg></tuv>
<tuv xml:lang="DE"><seg>eine große Katze &amp; ein Hund</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>only English</seg></tuv><tuv xml:lang="english"><seg>no</seg></tuv></tu>
<tu><prop>x</prop><tuv lang="de"><seg>Hut</seg></tuv><tuv lang="en"><seg>hat</seg></tuv></tu>
</body></tmx>"""


def memory(folder: Path, contents: str) -> dict[str, object]:
    (folder / "m.tmx").write_text(contents, encoding="utf-8")
    return {"kind": "tmx", "train": "m.tmx", "languages": ["en", "de"]}


def test_memories(tmp_path: Path) -> None:
    found, report = pairs_of(memory(tmp_path, MEMORY), tmp_path)
    assert found == [("a big cat & a dog", "eine große Katze & ein Hund"), ("hat", "Hut")]
    assert report.examples == ["m.tmx:6: the unit has no de"]


def test_entities_are_refused(tmp_path: Path) -> None:
    bomb = '<!DOCTYPE tmx [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;">]><tmx><seg>&b;</seg></tmx>'
    with pytest.raises(DataError, match=r"m\.tmx:1: declares an XML entity"):
        pairs_of(memory(tmp_path, bomb), tmp_path)


def test_a_broken_file_is_named_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"m\.tmx:8: is not well-formed XML"):
        pairs_of(memory(tmp_path, MEMORY.replace("</body></tmx>", "</tmx>")), tmp_path)
