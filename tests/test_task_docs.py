"""The pages of the tasks that learn from documents: their recipes train, their code runs."""

import re
import tomllib
from pathlib import Path

import pytest

import glassformer as gf
from stories import stories

DOCS = Path(__file__).parent.parent / "docs"
SMALL = {"width": 16, "heads": 2, "layers": 1, "hidden": 32}


@pytest.mark.parametrize("name", ["language-modelling", "masked-language-modelling", "span-corruption", "denoising"])
def test_the_page_of_a_task_is_true(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (DOCS / f"{name}.md").read_text(encoding="utf-8")
    (table,), (code,) = (re.findall(rf"```{kind}\n(.*?)```", page, flags=re.DOTALL) for kind in ("toml", "python"))
    monkeypatch.chdir(tmp_path)
    stories(tmp_path / "plays.txt")
    asked = tomllib.loads(table)
    asked["model"] |= SMALL
    gf.train({**asked, "train": {"steps": 2, "validate_every": 2}}, re.findall(r'gf.load\("(.*)"\)', code)[0])
    names: dict[str, object] = {}
    exec(code, names)  # noqa: S102
    assert "run" in names


def test_the_page_of_vectors_is_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (DOCS / "search.md").read_text(encoding="utf-8")
    (table,), (code,) = (re.findall(rf"```{kind}\n(.*?)```", page, flags=re.DOTALL) for kind in ("toml", "python"))
    monkeypatch.chdir(tmp_path)
    numbers = [("number one", "Zahl eins"), ("page two", "Seite zwei"), ("day three", "Tag drei")]
    rows = [f"{one} {letter}\t{two} {letter}\n" for letter in "abcdefghijklmnop" for one, two in numbers]
    Path("pairs.tsv").write_text("".join(rows), encoding="utf-8")
    asked = tomllib.loads(table)
    gf.train({**asked, "data": asked["data"] | {"valid": 0.2, "test": 0.2}}, "runs/my")
    names: dict[str, object] = {}
    exec(code, names)  # noqa: S102
    assert names["vectors"].shape == (2, 32)  # type: ignore[attr-defined]
    assert names["best"].text == "Seite zwei"  # type: ignore[attr-defined]
