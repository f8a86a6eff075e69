"""Sources that need a network, with the network played by a stand-in: a library, and an apt-get."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from glassformer.data.sources import debian, hub
from glassformer.errors import DataError

from .helpers import make_source, pairs_of, prepared

HUB = {"kind": "huggingface", "name": "some/set", "subset": "de-en", "fields": ["translation.en", "translation.de"]}
ROWS = [{"translation": {"en": "a cat", "de": "eine Katze"}}, {"translation": {"en": "a dog"}}]


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    calls: list[Any] = []

    def load_dataset(*names: Any, **options: Any) -> list[Any]:
        calls.append((names, options))
        return ROWS

    fake = SimpleNamespace(
        calls=calls, load_dataset=load_dataset, get_dataset_split_names=lambda *a, **k: ["train", "validation"]
    )
    monkeypatch.setitem(sys.modules, "datasets", fake)
    hub._split_names.cache_clear()
    return fake


def test_a_dataset_by_name(library: SimpleNamespace, tmp_path: Path) -> None:
    found, report = pairs_of(HUB, tmp_path, "valid")
    assert found == [("a cat", "eine Katze")]
    assert report.examples == ["some/set/validation:2: has no text under translation.de"]
    assert library.calls == [(("some/set", "de-en"), {"split": "validation", "revision": None, "streaming": True})]
    with pytest.raises(DataError, match="no test of its own"):
        pairs_of(HUB, tmp_path, "test")


def test_no_network_is_a_sentence(library: SimpleNamespace, tmp_path: Path) -> None:
    def away(*_: Any, **__: Any) -> None:
        raise ConnectionError("Couldn't reach the Hub\nand much more")

    library.get_dataset_split_names = away
    with pytest.raises(
        DataError, match=r"'some/set' cannot be loaded from the Hugging Face hub: Couldn't reach the Hub$"
    ):
        pairs_of(HUB, tmp_path)


def test_a_missing_library_is_a_sentence(
    library: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DataError, match=r"pip install 'glassformer\[hub\]'"):
        pairs_of(HUB, tmp_path)


ENGLISH = """Package: cat
Description-md5: 01
Description-en: animal of the house
 A cat is small. It sleeps much.
 It eats.
 .
 See https://cats.example for more.

Package: dog
Description-md5: 02
Description-en: other animal
 It barks.

"""
ITALIAN = """Package: cat
Description-md5: 01
Description-it: animale di casa
 Un gatto è piccolo. Dorme molto.
 Mangia.
 .
 Vedi https://cats.example per altro.

Package: gone
Description-md5: 99
Description-it: nessuno

"""
APT = f"""#!{sys.executable}
import re, sys
options = open(sys.argv[2]).read()
folder = re.search(r'Dir::State "(.*)"', options)[1] + "/lists/"
assert '"it"' in options and sys.argv[3] == "update"
if {{fails}}:
    sys.exit("E: no network")
open(folder + "x_i18n_Translation-en", "w").write({ENGLISH!r})
open(folder + "x_i18n_Translation-it", "w").write({ITALIAN!r})
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("GLASSFORMER_CACHE", str(tmp_path / "home"))
    (tmp_path / "bin").mkdir()
    return tmp_path


def install(home: Path, fails: bool = False) -> None:
    (home / "bin" / "apt-get").write_text(APT.replace("{fails}", str(fails)), encoding="utf-8")
    (home / "bin" / "apt-get").chmod(0o755)


def test_debian_descriptions(home: Path) -> None:
    install(home)
    expected = [
        ("animal of the house", "animale di casa"),
        ("A cat is small.", "Un gatto è piccolo."),
        ("It sleeps much.", "Dorme molto."),
        ("It eats.", "Mangia."),
    ]
    source = {"kind": "debian", "language": "it"}
    assert pairs_of(source, home)[0] == expected
    (home / "bin" / "apt-get").unlink()  # it is not asked again
    assert pairs_of(source, home)[0] == expected
    assert len(prepared(source, home, valid=0, test=0).splits["train"]) == 4


@pytest.mark.parametrize("chosen", [True, False])
def test_descriptions_are_kept_in_the_cache_folder(chosen: bool, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(home)
    if not chosen:
        monkeypatch.delenv("GLASSFORMER_CACHE")
        monkeypatch.setenv("XDG_CACHE_HOME", str(home / "user"))
    cache = home / "home" if chosen else home / "user" / "glassformer"
    found = make_source({"kind": "debian", "language": "it"}).files(home)
    assert found == [cache / "debian-it" / f"x_i18n_Translation-{language}" for language in ("en", "it")]
    found[0].unlink()
    with pytest.raises(DataError, match="debian-it: holds no descriptions in English and 'it': remove the folder"):
        make_source({"kind": "debian", "language": "it"}).files(home)


def test_a_failing_apt_is_a_sentence_and_leaves_nothing(home: Path) -> None:
    install(home, fails=True)
    with pytest.raises(DataError, match="apt brought no package descriptions in English and 'it': E: no network"):
        pairs_of({"kind": "debian", "language": "it"}, home)
    assert os.listdir(home / "home") == []  # noqa: PTH208


def test_no_apt_is_a_sentence(home: Path) -> None:
    with pytest.raises(DataError, match="needs apt-get"):
        pairs_of({"kind": "debian", "language": "it"}, home)


@pytest.mark.parametrize(
    ("english", "other", "expected"),
    [
        ("one\n A. B.", "uno\n A e B.", [("one", "uno"), ("A. B.", "A e B.")]),  # sentences do not match
        ("one\n A.\n .\n B.", "uno\n A.", [("one", "uno")]),  # paragraphs do not match
        ("one\n " + "x " * 41, "uno\n " + "x " * 41, [("one", "uno")]),
    ],
)
def test_what_does_not_match_is_not_cut(english: str, other: str, expected: list[tuple[str, str]]) -> None:
    assert list(debian.aligned(english, other)) == expected
