"""A run survives kill -9 and a full disk at any file operation: it can be taken up, and comes to the same weights."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from faults import Commands, Ending
from glassformer.interop import save
from glassformer.models import gpt2
from glassformer.recipe import Tokenizer as Section
from glassformer.recipe import to_toml
from glassformer.text import Tokenizer
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
        """The numbers of operations to try."""
        numbered = enumerate(self.run(self.folder / "counted").operations, start=1)
        shutil.rmtree(self.folder / "counted")
        return [number for number, each in numbered if each.startswith(STEPS)]

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
        shutil.rmtree(out)


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
        shutil.rmtree(out, ignore_errors=True)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small checkpoint from elsewhere."""
    folder = tmp_path_factory.mktemp("checkpoint")
    tokenizer = Tokenizer.train(["red", "blue"] * 9, Section(kind="byte"))
    save(gpt2(tokenizer.size, width=16, heads=2, layers=1, length=16), folder)
    tokenizer.save(folder / "tokenizer.json")
    return folder


@pytest.mark.parametrize("verb", ["import", "export"])
@pytest.mark.parametrize("forced", [False, True])
def test_an_import_or_export_that_is_cut_off_is_not_half_made(
    training: Training, checkpoint: Path, tmp_path: Path, verb: str, forced: bool
) -> None:
    commands, run = training.commands, tmp_path / "imported"
    assert commands.run("import", checkpoint, run).code == 0

    def work(out: Path, **fault: int) -> Ending:
        words = ["import", checkpoint, out] if verb == "import" else ["export", "--run", run, out]
        return commands.run(*words, *(["--force"] if forced else []), under=[tmp_path / "outs"], **fault)  # type: ignore[arg-type]

    def fresh(name: str) -> Path:
        out = tmp_path / "outs" / name
        out.mkdir(parents=True)
        if forced:
            (out / "config.json").write_text("{}")  # of something that is to be written over
            (out / "README.md").write_text("mine")
        else:
            out.rmdir()
        return out

    out = fresh("whole")
    whole = work(out)
    assert whole.code == 0, whole.err
    expected = files(out)
    shutil.rmtree(out)
    for number in range(1, len(whole.operations) + 1, 7):
        out = fresh("out")
        assert work(out, kill=number).code == -9
        if not forced:
            assert not out.exists() or files(out) == expected
            shutil.rmtree(out, ignore_errors=True)
        assert work(out).code == 0
        assert files(tmp_path / "outs") == {"out", *(f"out/{name}" for name in expected)}
        shutil.rmtree(out)
        out = fresh("out")
        before = files(out)
        ending = work(out, full=number)
        if ending.code:
            sentence(ending, 1, "No space left on device")
            assert files(out) == before
        shutil.rmtree(tmp_path / "outs")
