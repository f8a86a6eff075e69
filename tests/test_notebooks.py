"""The notebooks of the documents: each runs in a kernel of its own, and is saved with what it shows alone."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
LARGEST = 500_000  # bytes of a notebook with its pictures
every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def cells(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return found


def test_there_are_four() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["heads", "induction", "lora", "translator"]


@pytest.mark.learning
@every_notebook
def test_every_cell_runs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ipykernel")
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    from notebooks import cleaned, execute

    again = cleaned(execute(path))
    del sys.modules["notebooks"]
    saved = cells(path)
    for number, cell in enumerate(again.cells):  # and shows as many pictures and texts as were saved
        kinds = [sorted(output.get("data", ["text"])) for output in cell.get("outputs", [])]
        before = [sorted(output.get("data", ["text"])) for output in saved[number].get("outputs", [])]
        assert {*map(tuple, kinds)} == {*map(tuple, before)}, cell.source


@every_notebook
def test_what_is_saved_is_small_and_says_nothing_of_a_machine(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text) < LARGEST
    assert not re.search(r"/(home|work|tmp|root|usr)/|widget-view|\bTraceback\b", text)
    notebook = json.loads(text)
    assert {*notebook["metadata"]} == {"kernelspec", "language_info"}
    assert all(cell["metadata"] == {} for cell in notebook["cells"])
    assert any("image/png" in output.get("data", {}) for cell in cells(path) for output in cell.get("outputs", []))


@every_notebook
def test_every_page_that_a_notebook_links_to_is_there(path: Path) -> None:
    told = "".join("".join(cell["source"]) for cell in cells(path) if cell["cell_type"] == "markdown")
    for link, anchor in re.findall(r"\]\(([^)#]+)(?:#([^)]*))?\)", told):
        page = path.parent / link
        assert page.exists(), link
        titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
        names = [re.sub(r"[^\w\s-]", "", title.lower()).replace(" ", "-") for title in titles]
        assert not anchor or anchor in names, (link, anchor)
