"""The pages of the tasks that learn from documents: their recipes train, their code runs."""

import re
import tomllib
from pathlib import Path

import pytest

import glassformer as gf
from stories import stories

DOCS = Path(__file__).parent.parent / "docs"
SMALL = {"width": 16, "heads": 2, "layers": 1, "hidden": 32}


@pytest.mark.parametrize("name", ["language-modelling", "masked-language-modelling", "span-corruption"])
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
