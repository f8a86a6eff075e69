"""Registries find what the rooms and installed packages offer, and say what they do not have."""

import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from glassformer.errors import ConfigurationError
from glassformer.registry import FAMILIES, Registry

ROOM = {
    "__init__.py": "",
    "red.py": "from registries import COLOURS\nCOLOURS.register('red', 'the colour red')\n",
    "blue.py": "from registries import COLOURS\nCOLOURS.register('blue', 'the colour blue')\nSEEN = COLOURS.names()\n",
}


@pytest.fixture
def colours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry[str]:
    """A registry with a room of two modules, and a package with four entry points, two of which are broken."""
    (tmp_path / "colours").mkdir()
    for name, text in ROOM.items():
        (tmp_path / "colours" / name).write_text(text)
    (tmp_path / "registries.py").write_text(
        "from glassformer.registry import Registry\nCOLOURS = Registry('colour', 'colours', 'tests.colours')\n"
    )
    (tmp_path / "theirs.py").write_text("green, red = 'the colour green', 'another red'\n")
    information = tmp_path / "theirs-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(
        "[tests.colours]\ngreen = theirs:green\ngrey = theirs:grey\nblack = nowhere:black\nred = theirs:red\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("colours", "colours.red", "colours.blue", "registries", "theirs"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import registries  # type: ignore[import-not-found]

    return registries.COLOURS  # type: ignore[no-any-return]


@pytest.mark.filterwarnings("ignore:theirs")
def test_a_registry_finds_its_room_and_installed_packages(colours: Registry[str]) -> None:
    assert "red" in colours
    assert colours["red"] == "the colour red"
    assert colours["green"] == "the colour green"
    assert colours.names() == ["blue", "green", "red"]
    assert dict(colours.items()) == {name: f"the colour {name}" for name in ("blue", "green", "red")}
    assert list(dict(colours.items())) == colours.names()


@pytest.mark.filterwarnings("ignore:theirs")
def test_a_look_up_while_the_room_is_imported_sees_what_is_there_so_far(colours: Registry[str]) -> None:
    assert colours.names()
    assert sys.modules["colours.blue"].SEEN == ["blue"]


@pytest.mark.filterwarnings("ignore:theirs")
def test_the_same_thing_may_be_registered_again_but_no_other(colours: Registry[str]) -> None:
    colours.register("red", colours["red"])
    with pytest.raises(ConfigurationError, match='the colour "red" exists already'):
        colours.register("red", "crimson")
    assert colours["red"] == "the colour red"


@pytest.mark.filterwarnings("ignore:theirs")
def test_an_unknown_name_is_refused_with_the_nearest_or_with_all(colours: Registry[str]) -> None:
    assert "gren" not in colours
    with pytest.raises(ConfigurationError, match='unknown colour "gren": did you mean "green"'):
        colours["gren"]
    with pytest.raises(ConfigurationError, match='unknown colour "xyz": there are: blue, green, red'):
        colours["xyz"]


def test_a_broken_entry_point_is_warned_of_once_and_refused_by_name(colours: Registry[str]) -> None:
    with pytest.warns(UserWarning, match="theirs: its colour") as caught:
        assert colours["blue"] == "the colour blue"
    assert len(caught) == 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert colours.names() == ["blue", "green", "red"]
        with pytest.raises(ConfigurationError, match=r'theirs: its colour "grey" \(theirs:grey\) cannot be loaded'):
            colours["grey"]
        with pytest.raises(ConfigurationError, match="No module named 'nowhere'"):
            colours["black"]
        assert colours["red"] == "the colour red"


def test_the_room_may_be_one_module() -> None:
    assert Registry("number", "math", "tests.none").names() == []


def test_the_registry_of_families_has_them_all() -> None:
    pytest.importorskip("torch")
    known = {"bart", "bert", "captioner", "gpt2", "llama", "marian", "recurrent", "roberta", "t5", "transformer", "vit"}
    assert known <= set(FAMILIES.names())
    assert all(FAMILIES[name].__name__ == name for name in known)


def test_registries_are_imported_without_torch() -> None:
    code = "import sys, glassformer.registry; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)  # noqa: S603
