"""The page that lists the notes' statements: each has something that shows it, and all that is named exists."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import glassformer as gf
from glassformer.cli import app
from glassformer.experiments import EXPERIMENTS
from glassformer.looking.views import VIEWS
from glassformer.recipe import bundled

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "guide" / "notes.md"
TEXT = PAGE.read_text(encoding="utf-8")
TOLD, OPEN = TEXT.split("\n## Open\n")
PROSE = re.sub(r"```.*?```", "", TEXT, flags=re.DOTALL)
SPANS = sorted({*re.findall(r"`([^`\n]+)`", PROSE)})
ROWS = [line for line in TOLD.splitlines() if line.startswith("| ") and line not in ("| the notes say | here |",)]
STATEMENTS = [line for line in ROWS if not line.startswith("| ---")]
UNWRITTEN = re.findall(r"^- `([a-z-]+)`$", OPEN, flags=re.MULTILINE)  # experiments that have not landed
KEYS = {"task", "model", "train", "data", "tokenizer", "tune", "decode"}


def slug(heading: str) -> str:
    """The anchor that a heading gets: as on GitHub."""
    return re.sub(r"[^\w\- ]", "", heading.replace("`", "").strip().lower()).replace(" ", "-")


def commands(span: str) -> Iterator[tuple[list[str], list[str]]]:
    """The command of a span, with its words, and its options."""
    if span.startswith("glassformer "):
        words = re.sub(r'"[^"]*"', "TEXT", span).split()[1:]
        yield [word for word in words if not word.startswith("-")], [word for word in words if word.startswith("--")]


@pytest.fixture(scope="module")
def known() -> dict[str, Any]:
    """All commands, by name."""
    app._register_commands()
    found: dict[str, Any] = typer.main.get_command(app.app).commands  # type: ignore[attr-defined]
    return found


def test_every_statement_has_something_that_shows_it() -> None:
    assert len(STATEMENTS) > 500
    for row in STATEMENTS:
        cells = row.strip("| ").split(" | ")
        assert len(cells) == 2, row
        assert re.search(r"`[^`]+`|\]\(|the Studio", cells[1]), row


def test_links_lead_to_pages_and_headings() -> None:
    for target in {*re.findall(r"\]\(([^)]+)\)", TEXT)}:
        name, _, anchor = target.partition("#")
        page = (PAGE.parent / name).resolve() if name else PAGE
        assert page.is_file(), target
        if anchor:
            headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
            assert anchor in {slug(heading) for heading in headings}, target


@pytest.mark.parametrize("span", [span for span in SPANS if "::" in span])
def test_tests_exist(span: str) -> None:
    file, _, name = span.partition("::")
    assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8")


@pytest.mark.parametrize("span", [span for span in SPANS if span.endswith(".py")])
def test_files_exist(span: str) -> None:
    assert (ROOT / "src" / "glassformer" / span).is_file() or (ROOT / span).is_file()


@pytest.mark.parametrize("span", [span for span in SPANS if span.startswith("glassformer ")])
def test_commands_recipes_experiments_and_views_exist(span: str, known: dict[str, Any]) -> None:
    ((name, *words), options), *_ = commands(span)
    assert name in known, span
    command = known[name]
    if words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words[0]]
    assert {*options} <= {option for parameter in command.params for option in parameter.opts}, span
    if name == "train":
        assert words[0] in bundled() or words[0].endswith(".toml"), span
    if name == "experiment":
        assert words[0] in EXPERIMENTS or words[0] in UNWRITTEN, span
    if "--what" in options:
        assert re.findall(r"--what (\w+)", span)[0] in VIEWS, span


def test_what_shows_self_attention_does_not_show_cross_attention() -> None:
    """A translator's cross-attention is what `look` shows unless it is told otherwise."""
    heading, checked = "", 0
    for line in TOLD.splitlines():
        heading = line if line.startswith("#") else heading
        about = f"{heading} {line.partition(' | ')[0]}".lower()
        if "self-attention" not in about or "masked" in about:
            continue
        for span in re.findall(r"`(glassformer look[^`]*)`", line):
            if {*re.findall(r"--what (\w+)", span)} <= {"attention", "heads", "lines"}:
                assert "--kind encoder.self" in span, line
                checked += 1
    assert checked > 5


def test_an_experiment_that_has_landed_is_no_longer_open() -> None:
    assert not {*UNWRITTEN} & {*EXPERIMENTS}
    named = {*re.findall(r"`glassformer experiment ([a-z-]+)`", TOLD)}
    assert {*UNWRITTEN} <= named  # what is open is named where it is missed


@pytest.mark.parametrize("span", [span for span in SPANS if span.startswith("gf.")])
def test_names_of_the_library_exist(span: str) -> None:
    assert hasattr(gf, span.removeprefix("gf."))


@pytest.mark.parametrize("span", [span for span in SPANS if span.partition(".")[0] in KEYS])
def test_keys_of_recipes_exist(span: str) -> None:
    key = span.partition(" ")[0].partition(".")[2]
    assert re.search(rf"^(# )?{key} =", (ROOT / "docs" / "recipe.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
