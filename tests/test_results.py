"""The documents of results say what the records say, and no figure of theirs is typed by hand."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_documents_are_what_the_records_say() -> None:
    command = [sys.executable, str(ROOT / "benchmarks/results.py"), "write", "--check"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    assert found.returncode == 0, found.stderr


def test_records_name_a_recipe_that_ships_and_no_place_of_a_machine() -> None:
    paths = sorted((ROOT / "benchmarks/results").glob("*-*[0-9].json"))
    assert paths
    for path in paths:
        text = path.read_text(encoding="utf-8")
        assert (ROOT / f"src/glassformer/recipe/shipped/{json.loads(text)['recipe']}.toml").is_file()
        assert str(ROOT) not in text
        assert not any(str(value).startswith("/") for value in json.loads(text)["changed"].values())
