"""Odd arguments: every one gets the right answer or one sentence, and nothing is written where nobody asked for it."""

import os
import subprocess
from pathlib import Path
from shutil import copytree

import pytest

from glassformer.tasks.translation import Translator

from .helpers import COMMAND, Command, complains

TOO_LARGE = "99999999999999999999"
BIG = ["experiment order-blind --seed", "generate x --seed", "generate x --length", "generate x --top-k",
       "translate x --beam", "translate x --nbest", "classify x --top", "fill x --top", "data copy --samples",
       "compare copy copy --tokens", "compare copy copy --examples", "compare copy copy --seeds",
       *(f"vectors train x --out y --{name}" for name in ("width", "window", "negatives", "epochs", "least", "seed")),
       "vectors near x king --top"]  # fmt: skip
PATHS = ["train copy --out", "compare copy copy --out", "experiment order-blind --out", "vectors train x --out",
         "export", "import x", "translate x --run", "translate x --adapter", "translate --file", "evaluate --data",
         "answer x --context", "vectors near", "vectors train --out y"]  # fmt: skip


def two_runs(trained: Translator, folder: Path) -> list[Path]:
    """A run and its copy."""
    assert trained.path is not None
    return [trained.path, copytree(trained.path, folder / "another")]


@pytest.mark.parametrize("words", BIG)
def test_a_number_beyond_all_bounds_is_refused_before_anything_is_loaded(words: str, command: Command) -> None:
    option = words.split()[-1]
    complains(command(*words.split(), TOO_LARGE), 2, option)


@pytest.mark.parametrize("words", PATHS)
def test_an_empty_path_is_not_the_current_folder(
    words: str, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    last = ["king"] if words == "vectors near" else []
    complains(command(*words.split(), "", *last), 2, "it is empty: write . for the current folder")
    complains(command(*words.split(), "a\0b", *last), 2, "is not a path")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("words", PATHS[:6])
def test_a_path_to_write_to_is_utf_8(words: str, command: Command) -> None:
    complains(command(*words.split(), "a\udc80b"), 2, "is not UTF-8")


def test_no_folder_is_made_in_the_place_of_a_file(trained: Translator, command: Command, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    runs = two_runs(trained, tmp_path)
    for words in (
        ["import", "x"],
        ["export", "--run", runs[0]],
        ["experiment", "order-blind", "--out"],
        ["compare", *runs, "--out"],
    ):
        for out in (file, file / "sub"):
            complains(command(*words, out), 2, f"{file} is a file: choose a folder")


def test_a_device_is_not_replaced_by_a_file(command: Command, tmp_path: Path) -> None:
    pipe, text = tmp_path / "pipe", tmp_path / "text"
    os.mkfifo(pipe)
    text.write_text("the king\n" * 9)
    complains(command("vectors", "train", text, "--out", pipe), 2, f"{pipe} cannot be written: it is no regular file")
    assert pipe.is_fifo()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("train.steps=5\ntrain.lr=3", "sets several keys: write --set once for each"),
        ("train.steps=5\n[x]", "sets several keys: write --set once for each"),
        ("title=\udc80", "is not UTF-8 text"),
        (" = ", "is not of the form section.key=value"),
        (f"train.steps={'9' * 5000}", "…: input should be a valid integer"),
        (f"train.lr={'[' * 5000}", "…: input should be a valid number"),
    ],
)
def test_a_change_is_one_key_and_one_value(change: str, words: str, command: Command) -> None:
    complains(command("data", "copy", "--set", change), 2, words)


@pytest.mark.parametrize("text", [f"[train]\nsteps = {'9' * 5000}", f"title = {'[' * 5000}"])
def test_a_recipe_that_the_parser_gives_up_on_is_not_toml(text: str, command: Command, tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text(text)
    complains(command("data", tmp_path / "my.toml"), 2, "my.toml: is not TOML: ")


def test_a_recipe_that_is_no_text_is_not_shown(trained: Translator, command: Command) -> None:
    assert trained.path is not None
    complains(command("recipes", trained.path / "model.safetensors"), 2, "is not UTF-8 text")


@pytest.mark.parametrize("option", ["--set train.steps=3", "--tokens 10", "--seeds 1"])
def test_finished_runs_are_not_changed_by_options_of_training(
    option: str, trained: Translator, command: Command, tmp_path: Path
) -> None:
    runs = two_runs(trained, tmp_path)
    answer = command("compare", *runs, *option.split(), "--out", tmp_path / "out")
    complains(answer, 2, f"{option.split()[0]} is for recipes that are trained")
    assert not (tmp_path / "out").exists()


def test_a_command_works_where_its_streams_are_closed() -> None:
    for closed in (">&-", "<&-", "2>&-", ">&- 2>&- <&-"):
        line = f"{' '.join(COMMAND)} vectors near missing.txt king {closed}"
        ended = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False)  # noqa: S603, S607
        assert ended.returncode == 2
        assert "Traceback" not in ended.stderr
