"""A run survives kill -9 and a full disk at any file operation: it can be taken up, and comes to the same weights."""

from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree

import pytest

from faults import Commands, Ending
from glassformer.recipe import to_toml
from tiny import IDLE, recipe

STEPS = ("write", "rename", "remove", "rmdir")  # operations at which a kill leaves something new
EVERY = 5  # which of these operations are tried here: tests/drill tries all


class Training:
    """A tiny training by command, and what it comes to when nothing goes wrong."""

    def __init__(self, commands: Commands, folder: Path) -> None:
        self.commands, self.folder, self.recipe = commands, folder, folder / "my.toml"
        rows = folder / "rows.tsv"
        rows.write_text("".join(f"{each:b}\t{each:b}\n" for each in range(40)), encoding="utf-8")
        source = {"kind": "tsv", "train": str(rows)}
        train = {"steps": 2, "save_every": 1, "validate_every": 2, "keep": 1}
        made = recipe(IDLE, {"source": source, "data": {"valid": 0.1, "test": 0.1}, "train": train})
        self.recipe.write_text(to_toml(made), encoding="utf-8")
        whole = self.run(folder / "whole")
        assert whole.code == 0, whole.err
        self.weights = (folder / "whole" / "model.safetensors").read_bytes()
        self.files = files(folder / "whole")

    def run(self, out: Path, *more: str, kill: int | None = None, full: int | None = None) -> Ending:
        return self.commands.run("train", self.recipe, "--out", out, *more, under=[out], kill=kill, full=full)

    def operations(self) -> list[int]:
        """The numbers of operations to try, but for TensorBoard's."""
        numbered = enumerate(self.run(self.folder / "counted").operations, start=1)
        rmtree(self.folder / "counted")
        return [number for number, each in numbered if "tensorboard" not in each and each.startswith(STEPS)]

    def take_up(self, out: Path, resume_first: bool) -> None:
        """Go on with a run that was cut off, by one command or the other: it must become the whole run."""
        both = [("--resume",), ()] if resume_first else [(), ("--resume",)]
        ends = []
        for more in both:
            ends.append(self.run(out, *more))
            if ends[-1].code == 0:
                break
            sentence(ends[-1], 2, "nothing to resume" if more else "already holds a run: resume it with --resume")
        assert ends[-1].code == 0, ends
        assert (out / "model.safetensors").read_bytes() == self.weights
        assert files(out) == self.files


def files(folder: Path) -> set[str]:
    """The names of all files below a folder, but for TensorBoard's."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if "tensorboard" not in str(path)}


def sentence(ending: Ending, code: int, words: str) -> None:
    """A command has ended with a sentence."""
    assert ending.code == code, ending
    last = ending.err.splitlines()[-1]
    assert last.startswith("glassformer: "), ending.err
    assert words in last
    assert "Traceback" not in ending.err


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Training]:
    with Commands() as commands:
        yield Training(commands, tmp_path_factory.mktemp("faults"))


def test_after_a_kill_at_any_operation_the_run_is_taken_up(training: Training) -> None:
    numbers = training.operations()
    assert len(numbers) > 50
    for number in numbers[::EVERY]:
        out = training.folder / f"killed-{number}"
        assert training.run(out, kill=number).code == -9
        training.take_up(out, resume_first=number % 2 == 0)
        rmtree(out)


def test_a_disk_that_fills_at_any_operation_is_a_sentence_and_the_run_is_taken_up(training: Training) -> None:
    for number in training.operations()[2::EVERY]:
        out = training.folder / f"full-{number}"
        ending = training.run(out, full=number)
        if ending.code:  # else only a picture is missing
            sentence(ending, 1, "No space left on device")
        else:
            assert "No space left on device" in ending.err
        assert not [name for name in files(out) if name.endswith(".new")]
        if not (out / "model.safetensors").exists():
            training.take_up(out, resume_first=number % 2 == 0)
        rmtree(out, ignore_errors=True)
