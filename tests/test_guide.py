"""The guide: every experiment has a page, every page's code runs, and what it links to is there."""

import re
from pathlib import Path

import pytest

from glassformer.experiments import EXPERIMENTS
from glassformer.experiments.report import verdict

GUIDE = Path(__file__).parent.parent / "docs" / "guide"
PAGES = sorted(GUIDE.glob("*.md"))
LARGEST = 150_000  # bytes of a figure


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_has_a_page_that_says_its_claim_and_shows_its_figure(name: str) -> None:
    page = (GUIDE / f"{name}.md").read_text(encoding="utf-8")
    assert EXPERIMENTS[name].claim in page
    assert f"`glassformer experiment {name}`" in page
    assert re.search(rf"!\[{name}\]\(figures/{name}\.(svg|png)\)", page)
    assert "```python" in page
    assert f"({name}.md)" in (GUIDE / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_page_and_the_table_of_the_guide_have_one_verdict(name: str) -> None:
    page = (GUIDE / f"{name}.md").read_text(encoding="utf-8")
    said = re.findall(r"^\*\*Does it hold\?\*\* (.*)$", page, flags=re.MULTILINE)
    table = (GUIDE / "README.md").read_text(encoding="utf-8")
    row = f"({name}.md) | {EXPERIMENTS[name].claim} | "
    assert said in ([verdict(True)], [verdict(False)])
    assert row + ("holds |" if said == [verdict(True)] else "does not hold |") in table


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_code_of_a_page_runs(page: Path) -> None:
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL):
        exec(block, names)  # noqa: S102


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_page_links_to_is_there_and_small(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / link).exists(), link
        if link.startswith("figures/"):
            assert (page.parent / link).stat().st_size < LARGEST, link
