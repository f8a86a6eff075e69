"""The page on security names tests that are there."""

import re
from pathlib import Path

TESTS = Path(__file__).parent
PAGE = (TESTS.parent / "docs" / "security.md").read_text(encoding="utf-8")


def test_every_test_that_the_page_names_exists() -> None:
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", PAGE)
    assert len(named) > 20
    for path, name in named:
        assert re.search(rf"^def {name}\(", (TESTS / path).read_text(encoding="utf-8"), flags=re.MULTILINE), name


def test_every_promise_outside_of_its_tables_names_one() -> None:
    """What is trusted, and what remains, promise little; where they do, a test holds it."""
    promises = [
        *("is searched, not imported", "checked against damage", "nothing is unpickled", "auto_map", "this machine"),
        *("Nothing is written outside", "and safetensors alone"),
    ]
    for promise in promises:
        assert re.search(rf"{promise}[^|]*?\.py::test_", PAGE), promise


def test_every_row_of_its_table_names_one() -> None:
    heads = ("| file", "| it tries", "| ---")
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith(heads)]
    assert len(rows) > 20
    assert [row for row in rows if ".py::test_" not in row] == []
