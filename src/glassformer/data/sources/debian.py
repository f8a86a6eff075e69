"""Debian: package descriptions and their translations, fetched by apt into the cache folder, without root.

The Debian Description Translation Project keeps them in files called Translation-en, Translation-it and so on; a
description and its translations have the same Description-md5.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import Field

from glassformer.data.cache import cache_folder
from glassformer.data.examples import Columns
from glassformer.data.report import Report
from glassformer.data.source import Found, Source, Split
from glassformer.data.textfiles import lines
from glassformer.errors import DataError

MOST_WORDS = 40
SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[^\W\d_a-zà-ÿ])")  # before a capital letter
ADDRESS = re.compile(r"https?://|www\.|ftp://")
OPTIONS = """
#clear Acquire::Languages;
Acquire::Languages {{ "en"; "{language}"; }};
Acquire::GzipIndexes "false";
Acquire::IndexTargets::deb::Packages::DefaultEnabled "false";
Acquire::IndexTargets::deb-src::Sources::DefaultEnabled "false";
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
Dir::State "{folder}/state";
Dir::State::status "{folder}/status";
Dir::Cache "{folder}/cache";
"""


class DebianSource(Source):
    """English package descriptions and their translations, through apt, on any Debian or Ubuntu machine."""

    kind: Literal["debian"]
    language: Literal["it", "fr", "de"] = Field(description="the language to translate into")

    def read(self, split: Split, base: Path, report: Report) -> Iterator[Found]:
        """Synopses, paragraphs and, if both sides have equally many, sentences of descriptions."""
        paths = self.files(base)
        english = {key: text for path in paths if path.name.endswith("-en") for key, text, _ in _descriptions(path)}
        for path in paths:
            if not path.name.endswith("-en"):
                for key, text, place in _descriptions(path):
                    if key in english:
                        yield from ((Columns(pair), place) for pair in aligned(english[key], text))

    def files(self, base: Path) -> list[Path]:
        """The Translation files of English and the language; fetched once, then kept in the cache folder."""
        folder = cache_folder() / f"debian-{self.language}"
        try:
            if not folder.is_dir():
                _fetch(self.language, folder)
        except OSError as error:
            raise DataError(f"{folder}: the descriptions cannot be written: {error.strerror or error}") from None
        found = sorted(folder.glob("*Translation-*"))
        if _languages(found) != {"en", self.language}:
            what = f"holds no descriptions in English and {self.language!r}"
            raise DataError(f"{folder}: {what}: remove the folder to fetch them again")
        return found


def _languages(paths: list[Path]) -> set[str]:
    return {path.name.rpartition("-")[2] for path in paths}


def _fetch(language: str, folder: Path) -> None:
    """Have apt download the Translation files, from the package sources of this machine."""
    if shutil.which("apt-get") is None:
        raise DataError("source.kind debian needs apt-get, which Debian and Ubuntu have and this machine has not")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".making-", dir=folder.parent) as name:
        making = Path(name)
        for each in ("state/lists/partial", "cache/archives/partial", "found"):
            (making / each).mkdir(parents=True)
        making.chmod(0o755)  # if apt runs as root, it downloads as another user
        (making / "status").touch()
        (making / "options").write_text(OPTIONS.format(language=language, folder=making), encoding="utf-8")
        command = ["apt-get", "-c", str(making / "options"), "update"]
        try:
            ended = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)  # noqa: S603
            complaint = ended.stderr
        except subprocess.TimeoutExpired:
            complaint = "it took more than ten minutes"
        for path in (making / "state/lists").glob("*_i18n_Translation-*"):
            path.rename(making / "found" / path.name)
        if _languages(list((making / "found").iterdir())) != {"en", language}:
            reason = (complaint.strip().splitlines() or ["this machine's package sources have none"])[-1]
            raise DataError(f"apt brought no package descriptions in English and {language!r}: {reason}")
        (making / "found").rename(folder)


def _descriptions(path: Path) -> Iterator[tuple[str, str, str]]:
    """The Description-md5, the description and the place of each package in a Translation file."""
    key, text, start = "", list[str](), 0
    for number, found in enumerate(lines(path, Report()), 1):
        line = found if isinstance(found, str) else "?"
        if line.startswith("Description-md5: "):
            key, start = line.removeprefix("Description-md5: "), number
        elif line.startswith("Description-"):
            text = [line.partition(": ")[2]]
        elif line.startswith(" "):
            text.append(line)
        elif not line and text:
            yield key, "\n".join(text), f"{path.name}:{start}"
            text = []
    if text:
        yield key, "\n".join(text), f"{path.name}:{start}"


def aligned(english: str, other: str) -> Iterator[tuple[str, str]]:
    """The pairs in a description and its translation: of 1 to 40 words, without addresses."""
    sides = [_paragraphs(text) for text in (english, other)]
    if len(sides[0]) != len(sides[1]):
        sides = [side[:1] for side in sides]  # the synopses at least
    for left, right in zip(*sides, strict=True):
        sentences = [SENTENCE_END.split(text) for text in (left, right)]
        if len(sentences[0]) != len(sentences[1]):
            sentences = [[left], [right]]
        for pair in zip(*sentences, strict=True):
            if all(1 <= len(text.split()) <= MOST_WORDS and not ADDRESS.search(text) for text in pair):
                yield pair


def _paragraphs(text: str) -> list[str]:
    """The synopsis, then the paragraphs of a description, which lines with only a full stop separate."""
    synopsis, _, body = text.partition("\n")
    parts = re.split(r"^ \.$", body, flags=re.MULTILINE)
    return [synopsis, *(" ".join(part.split()) for part in parts if part.strip())]
