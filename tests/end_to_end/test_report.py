"""The report of a run, as `train` ends with it and as `report` writes it."""

import errno
import shutil
from pathlib import Path

import pytest

from glassformer.runs import export_run, import_run, train
from glassformer.runs.report import Report
from glassformer.tasks.translation import Translator
from tiny import IDLE, recipe

from .helpers import Command, complains, write


def test_training_ends_with_a_report_and_a_finished_run_gets_it_again(command: Command, tmp_path: Path) -> None:
    mine, out = write(tmp_path / "my.toml", recipe(IDLE)), tmp_path / "run"
    answer = command("train", mine, "--out", out)
    assert answer.code == 0, answer.err
    assert f"All of this is in {out / 'report.html'}." in answer.out
    first = (out / "report.html").read_text(encoding="utf-8")
    assert "<h2>Examples</h2>" in first
    assert f"translate --run {out}" in first
    (out / "report.html").unlink()
    assert command("train", mine, "--out", out, "--resume").code == 0
    assert (out / "report.html").read_text(encoding="utf-8") == first


def test_the_command_writes_it_anew_and_elsewhere(command: Command, trained: Translator, tmp_path: Path) -> None:
    folder = shutil.copytree(trained.path or "", tmp_path / "run")
    answer = command("report", "--run", folder)
    assert (answer.code, answer.out) == (0, f"The report is {folder / 'report.html'}.\n"), answer.err
    elsewhere = tmp_path / "page.html"
    assert command("report", "--run", folder, "--out", elsewhere).code == 0
    assert elsewhere.read_bytes() == (folder / "report.html").read_bytes()
    complains(command("report", "--run", folder, "--out", tmp_path / "no" / "x.html"), 2, "there is no folder")
    complains(command("report", "--run", folder, "--out", tmp_path), 2, "it is a folder; name a file, such as")
    complains(command("report", "--run", tmp_path / "nowhere"), 2, "there is no such run folder")


def test_an_unfinished_run_has_a_report(command: Command, tmp_path: Path) -> None:
    train(recipe(IDLE), tmp_path)
    for name in ("model.safetensors", "checksums.json"):
        (tmp_path / name).unlink()
    assert command("report", "--run", tmp_path).code == 0
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "The training is unfinished: its last checkpoint is of step 4" in text
    assert "<h2>Examples</h2>" in text
    shutil.rmtree(tmp_path / "checkpoints")
    assert command("report", "--run", tmp_path).code == 0
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "it has no checkpoint yet" in text
    assert "There are no scores of a test: " in text
    assert "<h2>Training</h2>" in text


def test_an_imported_run_has_one_too(command: Command, tmp_path: Path) -> None:
    export_run(train(recipe(IDLE, {"model": {"family": "t5"}}), tmp_path / "trained"), tmp_path / "checkpoint")
    import_run(tmp_path / "checkpoint", tmp_path / "run")
    answer = command("report", "--run", tmp_path / "run")
    assert answer.code == 0, answer.err
    text = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "There are no scores of a test: " in text
    assert f"translate --run {tmp_path / 'run'} TEXT" in text
    assert "<h2>Recipe</h2>" not in text


@pytest.mark.parametrize(("name", "sentence"), [("test.jsonl", "is damaged"), ("gone", "has no test examples")])
def test_without_test_examples_it_says_why(
    command: Command, trained: Translator, tmp_path: Path, name: str, sentence: str
) -> None:
    folder = shutil.copytree(trained.path or "", tmp_path / "run")
    (folder / "test.jsonl").write_text("{", encoding="utf-8") if name != "gone" else (folder / "test.jsonl").unlink()
    assert command("report", "--run", folder).code == 0
    text = (folder / "report.html").read_text(encoding="utf-8")
    assert sentence in text
    assert "Validation at step" in text


def test_damaged_weights_are_refused(command: Command, trained: Translator, tmp_path: Path) -> None:
    folder = shutil.copytree(trained.path or "", tmp_path / "run")
    (folder / "model.safetensors").write_bytes(b"x")
    complains(command("report", "--run", folder), 2, "model.safetensors does not match its checksum")
    assert not (folder / "report.html").exists()


def test_a_full_disk_fails_no_finished_training_and_leaves_nothing_half_made(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, out = write(tmp_path / "my.toml", recipe(IDLE)), tmp_path / "run"
    write_text = Path.write_text

    def full(path: Path, text: str, **options: str) -> int:
        if "report.html" in path.name:
            write_text(path, text[:1000], **options)
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        return write_text(path, text, **options)

    monkeypatch.setattr(Path, "write_text", full)
    answer = command("train", mine, "--out", out)
    assert answer.code == 0
    assert f"glassformer: {out / 'report.html'} cannot be written: No space left on device" in answer.err
    assert "All of this is in" not in answer.out
    assert "Try next:" in answer.out
    assert not [path.name for path in out.iterdir() if "report" in path.name]
    complains(command("report", "--run", out), 1, "No space left on device")
    monkeypatch.undo()
    command("report", "--run", out)
    before = (out / "report.html").read_bytes()
    monkeypatch.setattr(Path, "write_text", full)
    command("report", "--run", out)
    assert (out / "report.html").read_bytes() == before
    assert [path.name for path in out.iterdir() if "report" in path.name] == ["report.html"]


def test_an_error_of_a_section_is_a_sentence_in_it(trained: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    from glassformer.errors import InputError
    from glassformer.runs.report import try_on

    def refuse(*given: object) -> None:
        raise InputError("no <picture> today")

    assert trained.path is not None
    tested = try_on(trained.examples("test")[:4], trained)
    monkeypatch.setattr(Translator, "pictures", refuse)
    text = Report(trained.path, trained.recipe, trained, tested).page()
    assert "This cannot be shown: no &lt;picture&gt; today" in text
    assert "<h2>Recipe</h2>" in text
