"""What all commands share that read texts: where texts come from, which run is used, and errors of single texts."""

import json
import shutil
from pathlib import Path

import pytest

from glassformer.cli.items import Item
from glassformer.cli.template import Template
from glassformer.errors import InputError
from glassformer.tasks.translation import Translator

from .helpers import Command, complains, envelopes

VERBS = ("translate", "transform", "generate", "classify", "tag", "answer", "fill")


@pytest.fixture
def here(trained: Translator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with one run in ./runs, beside a folder that is none."""
    assert trained.path is not None
    monkeypatch.chdir(tmp_path)
    shutil.copytree(trained.path, tmp_path / "runs" / "copy", ignore=shutil.ignore_patterns("checkpoints"))
    (tmp_path / "runs" / "notes").mkdir()
    return tmp_path


def test_texts_come_from_arguments_from_files_or_from_a_pipe(
    command: Command, trained: Translator, tmp_path: Path
) -> None:
    (tmp_path / "one.txt").write_text("a b\n", encoding="utf-8")
    (tmp_path / "two.txt").write_text("c d", encoding="utf-8")
    files = ("--file", tmp_path / "one.txt", "--file", tmp_path / "two.txt")
    for more, stdin in ((("a b", "c d"), b""), (files, b""), ((), b"a b\nc d\n"), (("--file", "-"), b"a b\nc d\n")):
        answer = command("translate", "--run", trained.path, *more, stdin=stdin)
        assert (answer.code, answer.out, answer.err) == (0, "a b\nc d\n", "")
        rows = envelopes(command("translate", "--run", trained.path, *more, "--json", stdin=stdin))
        assert [(row["input"], row["output"], row["error"]) for row in rows] == [
            ("a b", "a b", None),
            ("c d", "c d", None),
        ]
    best = command("translate", "--run", trained.path, *files, "--nbest", "2").out.splitlines()
    assert [line.split("\t")[0] for line in best] == ["1", "1", "2", "2"]
    assert command("translate", "--run", trained.path, "--stream", "a b", "c d").out == "a b\nc d\n"


@pytest.mark.parametrize("verb", VERBS)
def test_every_command_takes_texts_or_a_file_but_not_both(command: Command, verb: str) -> None:
    complains(command(verb, "a", "--file", "b.txt"), 2, "give TEXT or --file, not both")
    shown = " ".join(command(verb, "--help").out.replace("│", " ").split())
    for word in ("TEXT", "--file", "--run", "--json", "input, output, error, details"):
        assert word in shown


def test_a_long_text_is_cut_with_a_notice(command: Command, trained: Translator) -> None:
    long = "a b c " * 200
    for more in ((), ("--stream",)):
        alone = command("translate", "--run", trained.path, long, *more)
        assert alone.err == (
            "glassformer: the text: longer than the 64 tokens that the model reads: what comes after them is left out\n"
        )
    assert command("translate", "--run", trained.path, "a", long).err.startswith("glassformer: argument 2: longer than")


def test_the_run_is_the_current_folder(command: Command, trained: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    assert trained.path is not None
    monkeypatch.chdir(trained.path)
    assert command("translate", "a b").out == "a b\n"
    assert json.loads(command("evaluate", "--json").out)["pairs"] > 0


def test_the_run_is_the_only_one_in_runs(command: Command, here: Path) -> None:
    assert command("translate", "a b").out == "a b\n"
    assert command("evaluate").code == 0
    complains(command("generate", "a b"), 2, "runs/copy does not generate: it was trained for translation")


def test_of_several_runs_one_must_be_named(command: Command, here: Path) -> None:
    for number in range(5):
        (here / "runs" / f"model-{number}").mkdir()
        (here / "runs" / f"model-{number}" / "import.json").write_text("{}", encoding="utf-8")
    answer = command("translate", "a b")
    complains(answer, 2, "there are several runs to translate with", "runs/copy, runs/model-0", "name one with --run")
    assert "and 1 more" in answer.err
    assert "runs/model-4" not in answer.err
    assert "notes" not in answer.err
    assert command("translate", "--run", "runs/copy", "a b").out == "a b\n"


def test_of_several_runs_the_one_that_can_is_used(command: Command, here: Path) -> None:
    other = here / "runs" / "tags"
    other.mkdir()
    (other / "recipe.toml").write_text('[task]\nkind = "tagging"\n', encoding="utf-8")
    (other / "config.json").write_text("{}", encoding="utf-8")
    assert command("translate", "a b").out == "a b\n"


def test_the_only_text_that_fails_has_an_envelope_too(capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(text: str) -> str:
        raise InputError(f"{text} is bad")

    template: Template[str, str] = Template(
        "testing", refuse, lambda texts, _: texts, lambda item, _: "", str, lambda _: {}
    )
    with pytest.raises(InputError, match="1 of 1 texts could not be used"):
        template.answer(iter([Item("a", 1, "")]), as_json=True)
    assert json.loads(capsys.readouterr().out) == {"input": "a", "output": None, "error": "a is bad"}
    with pytest.raises(InputError, match=r"^a is bad$"):
        template.answer(iter([Item("a", 1, "")]), as_json=False)


@pytest.mark.parametrize("name", ["classify", "evaluate"])
def test_without_a_run_a_sentence_says_how_to_get_one(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    words = (f"there is no run to {name} with", "--run", "glassformer train", "glassformer import")
    complains(command(name), 2, *words)
    (tmp_path / "runs").mkdir()
    complains(command(name), 2, *words)
    complains(command("export", "out"), 2, "there is no run to export with")


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in ("translate", "transform")])
def test_a_run_that_cannot_do_it_is_refused_before_anything_is_read(
    command: Command, trained: Translator, verb: str
) -> None:
    answer = command(verb, "--run", trained.path, "--file", "nowhere.txt")
    complains(answer, 2, f"does not {verb}", "it was trained for translation")


def test_without_a_run_the_model_that_ships_translates(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = command("translate", "Where is the station?")
    assert (found.code, found.out) == (0, "Wo ist der Bahnhof?\n")
    assert "en-de is used, which ships (Everyday English → German)" in found.err
    assert command("models").out.startswith("en-de  Everyday English → German  (15.")
    assert command("models", "en-de").out.startswith("# Everyday English → German\n")
    complains(command("models", "en-fr"), 2, "there is no model 'en-fr' that ships: expected en-de")
