"""`diff`: two runs on one text."""

from __future__ import annotations

from pathlib import Path

import pytest

from glassformer.runs import train
from glassformer.tasks.translation import Translator
from tiny import IDLE, recipe

from .helpers import Command, complains


def test_a_run_and_itself(command: Command, trained: Translator) -> None:
    answer = command("diff", trained.path or "", trained.path or "", "a b c")
    assert answer.code == 0, answer.err
    lines = answer.out.splitlines()
    assert lines[:3] == ["a b c", f"  A {trained.path}: a b c", f"  B {trained.path}: a b c"]
    assert "tokens of both: ▁a ▁b ▁c" in lines
    assert "the streams do not differ" in lines
    assert "  layer 1   0.00   0.00   0.00   0.00" in lines
    assert "note:" not in answer.out


def test_two_checkpoints_of_a_run(command: Command, trained: Translator, tmp_path: Path) -> None:
    both = (trained.path or "", trained.path or "")
    answer = command("diff", *both, "a b c", "--checkpoints", "110", "220")
    assert answer.code == 0, answer.err
    assert "first difference: encoder.embedding" in answer.out
    for ending in ("html", "csv", "svg"):
        file = tmp_path / f"x.{ending}"
        found = command("diff", *both, "a b c", "--checkpoints", "110", "220", "--out", file)
        assert (found.code, found.out) == (0, f"{file} is written.\n"), found.err
    assert "first difference: encoder.embedding" in (tmp_path / "x.html").read_text(encoding="utf-8")
    assert (tmp_path / "x.csv").read_text(encoding="utf-8").startswith("what,name,layer,head,first,second")


def test_runs_of_other_shapes_say_what_is_not_compared(command: Command, trained: Translator, tmp_path: Path) -> None:
    train(recipe(IDLE), tmp_path / "other")
    answer = command("diff", trained.path or "", tmp_path / "other", "a b c")
    assert answer.code == 0, answer.err
    assert "note: the streams of the encoders have different widths (3 x 32 and 3 x 16)" in answer.out
    assert "encoder.self: distance of each head" in answer.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("RUN", "nowhere", "a"), ("nowhere",)),
        (("RUN", "RUN", ""), ("there is nothing to look at",)),
        (("RUN", "RUN"), ("missing argument", "TEXT")),
        (("RUN", "RUN", "a", "--out", "x.trace"), ("x.trace: what it is to hold is told by its end",)),
        (("RUN", "RUN", "a", "--out", "nowhere/x.csv"), ("there is no folder nowhere",)),
        (("RUN", "RUN", "a", "--checkpoints", "1", "2"), ("1",)),
    ],
)
def test_what_cannot_be_compared_is_a_sentence(
    command: Command, trained: Translator, arguments: tuple[str, ...], words: tuple[str, ...]
) -> None:
    given = [str(trained.path) if each == "RUN" else each for each in arguments]
    complains(command("diff", *given), 2, *words)
