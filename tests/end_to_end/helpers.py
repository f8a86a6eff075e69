"""Commands as a user types them, and what they answer."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glassformer.recipe import Recipe, to_toml

COMMAND = [sys.executable, "-m", "glassformer"]


@dataclass(frozen=True)
class Answer:
    """What a command wrote, and its exit code."""

    code: int
    out: str
    err: str


Command = Callable[..., Answer]


def start(*arguments: str | Path, launcher: list[str] | None = None) -> subprocess.Popen[str]:
    """A command in a process of its own."""
    return subprocess.Popen(  # noqa: S603
        [*(launcher or COMMAND), *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONWARNINGS": "error::ResourceWarning"},
    )


def end(process: subprocess.Popen[str], stdin: str = "") -> Answer:
    """What a process answers in the end."""
    try:
        out, err = process.communicate(stdin, timeout=150)
    finally:
        process.kill()
    return Answer(process.returncode, out, err)


def write(path: Path, recipe: Recipe) -> Path:
    """A recipe as a file."""
    path.write_text(to_toml(recipe), encoding="utf-8")
    return path


def envelopes(answer: Answer) -> list[dict[str, Any]]:
    """The objects that a command printed, one for each input: all have the same first keys."""
    rows: list[dict[str, Any]] = [json.loads(line) for line in answer.out.splitlines()]
    for row in rows:
        assert list(row)[:3] == ["input", "output", "error"]
        if row["error"] is not None:
            assert row["output"] is None
            assert f"glassformer: {row['error']}\n" in answer.err
    return rows


def complains(answer: Answer, code: int, *words: str) -> None:
    """The answer is one sentence on stderr, with these words in it, and this exit code."""
    assert answer.code == code, answer
    assert answer.out == ""
    assert len(answer.err.splitlines()) == 1, answer.err
    assert answer.err.startswith("glassformer: ")
    for word in words:
        assert word in answer.err
