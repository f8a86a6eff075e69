"""What is shown to people: lines on stdout, a progress bar on stderr, commands that can be typed."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

out = Console(highlight=False)


def say(line: str) -> None:
    """A line for people, as it is."""
    out.print(line, markup=False, soft_wrap=True)


@contextmanager
def bar(name: str, total: int) -> Iterator[Callable[[int, int], None] | None]:
    """A progress bar on stderr, where that is a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal or total < 2:
        yield None
        return
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task(name, total=total)
        yield lambda done, of: progress.update(task, completed=done, total=of)


def program() -> str:
    """How this program is called from a shell: by its name if that is found, else as it was called now."""
    if shutil.which("glassformer"):
        return "glassformer"
    by_path = Path(sys.argv[0]).name == "glassformer"
    return shlex.quote(sys.argv[0]) if by_path else f"{shlex.quote(sys.executable)} -m glassformer"


def command_line(command: str, folder: Path) -> str:
    """A command of a run as it can be typed: after the program's name, with the run's folder for RUN."""
    return f"{program()} {command.replace('RUN', shlex.quote(str(folder)), 1)}"
