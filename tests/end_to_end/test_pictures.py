"""The pictures of docs/looking/figures.md and of the README are there, and the commands above them still make some."""

import re
import shlex
from pathlib import Path

import pytest

from .helpers import Command

HOME = Path(__file__).parents[2]
SCREENSHOTS = (HOME / "tests" / "browser" / "test_screenshots.py").read_text(encoding="utf-8")  # of the Studio
PAGES = [HOME / "README.md", HOME / "docs" / "looking" / "figures.md"]
COMMANDS = sorted(
    {
        found
        for page in PAGES
        for found in re.findall(r"glassformer (look .*?--out docs/\S+\w)", page.read_text("utf-8"))
    }
)


def test_there_are_pictures_and_all_are_made_by_commands() -> None:
    assert len(COMMANDS) >= 8
    made = {shlex.split(each)[-1] for each in COMMANDS}
    for page in PAGES:
        shown = re.findall(r"!\[.*?\]\((\S*?pictures/\S+?)\)", page.read_text("utf-8"))
        assert shown
        for each in shown:
            path = (page.parent / each).resolve().relative_to(HOME)
            assert str(path) in made or path.stem.removeprefix("studio-") in SCREENSHOTS
            assert (HOME / path).stat().st_size < 400_000


@pytest.mark.parametrize("line", COMMANDS, ids=[shlex.split(each)[-1].split("/")[-1] for each in COMMANDS])
def test_a_command_of_the_docs_makes_a_picture(command: Command, line: str, tmp_path: Path) -> None:
    *arguments, out = shlex.split(line)
    file = tmp_path / Path(out).name
    answer = command(*arguments, file, "--run", "en-de")
    assert (answer.code, answer.err) == (0, "")
    assert file.stat().st_size > 3000
