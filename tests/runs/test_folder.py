"""The run folder: whole files or none, and a training that can be read afterwards."""

import copy
import json
import math
import os
import shutil
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import glassformer as gf
from glassformer.data import Corpus
from glassformer.data.cache import cache_folder
from glassformer.errors import ConfigurationError, RunError, TrainingError
from glassformer.recipe import read_recipe
from glassformer.runs import Listener, train
from glassformer.runs.folder import reserved, write_weights
from glassformer.runs.metrics import read_metrics, recording
from glassformer.tasks.run import Evaluation
from glassformer.tasks.translation import Translator
from glassformer.training.checkpoints import not_finite, weights
from glassformer.writing import check_free, unfinished, write_text
from tiny import IDLE, recipe, table


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    write_text(tmp_path / "a", "old")
    write_text(tmp_path / "a", "new: é")
    assert (tmp_path / "a").read_text(encoding="utf-8") == "new: é"
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o644
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_write_that_fails_leaves_what_was_there_and_nothing_else(tmp_path: Path) -> None:
    write_text(tmp_path / "a", "old")
    with pytest.raises(UnicodeEncodeError):
        write_text(tmp_path / "a", "half\ud800")
    assert (tmp_path / "a").read_text(encoding="utf-8") == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_weights_that_cannot_be_written_are_a_failure_of_the_work(trained: Translator, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"model.safetensors cannot be written: .*the checkpoints are intact"):
        write_weights(tmp_path / "nowhere", trained.model)


def test_a_folder_is_trained_into_by_one_at_a_time(tmp_path: Path) -> None:
    out = tmp_path / "runs" / "one"
    with reserved(out):
        with pytest.raises(RunError, match="one is being trained by another process: choose another folder"):
            train(recipe(IDLE), out)
        assert out.exists()
    assert list(tmp_path.iterdir()) == []  # nothing was written
    train(recipe(IDLE), out)
    assert not (out / ".lock").exists()


def test_a_lock_that_nobody_holds_is_no_hindrance(tmp_path: Path) -> None:
    (tmp_path / ".lock").touch()  # as a killed process leaves it
    train(recipe(IDLE), tmp_path)


def test_the_folder_holds_all_that_is_promised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    monkeypatch.setattr("tempfile.tempdir", str(elsewhere))
    for name in ("HOME", "XDG_CACHE_HOME", "TMPDIR"):
        monkeypatch.setenv(name, str(elsewhere))
    trained: Any = train(recipe(), folder)
    names = {path.name for path in folder.iterdir()} - {"tensorboard"}
    assert names == {
        "recipe.toml", "tokenizer.json", "config.json", "model.safetensors", "valid.jsonl", "test.jsonl",
        "metrics.jsonl", "checkpoints", "log.txt", "environment.json", "data.json", "checksums.json",
    }  # fmt: skip
    assert list(elsewhere.iterdir()) == []
    assert read_recipe(folder / "recipe.toml") == trained.recipe
    assert (folder / "model.safetensors").stat().st_mode & 0o777 == 0o644
    facts = json.loads((folder / "environment.json").read_text(encoding="utf-8"))
    assert facts["packages"]["torch"].split("+")[0] == torch.__version__.split("+")[0]
    assert facts["kernels"].startswith(torch.backends.cpu.get_cpu_capability())
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    arguments = config["model"]["arguments"]
    assert (config["model"]["family"], arguments["width"]) == ("transformer", 32)
    assert arguments["vocabulary"] == trained.tokenizer.size


def test_a_loaded_run_is_the_trained_one(trained: Translator) -> None:
    assert trained.path is not None
    loaded = gf.load(trained.path)
    assert loaded.recipe == trained.recipe
    assert all(map(torch.equal, loaded.model.parameters(), trained.model.parameters()))
    texts = ["a b c", "h g"]
    assert loaded.translate(texts, beam=3) == trained.translate(texts, beam=3)


class Listening(Listener):
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.steps: list[int] = []

    def stage(self, name: str, done: int, total: int | None) -> None:
        self.told.append(name)

    def prepared(self, corpus: Corpus, model: nn.Module) -> None:
        self.told.append("prepared")

    def say(self, line: str) -> None:
        self.told.append(line)

    def tick(self, record: dict[str, Any]) -> None:
        self.steps.append(record["step"])

    def log(self, record: dict[str, Any]) -> None:
        self.told.append("validation" if "valid_loss" in record else "loss")


def test_a_training_is_told_measured_and_logged(tmp_path: Path) -> None:
    listener = Listening()
    run = train(recipe(IDLE, {"source": {"seed": 77}}), tmp_path / "run", listener=listener)
    assert listener.steps == [1, 2, 3, 4]
    assert listener.told.index("reading") < listener.told.index("tokenizer") < listener.told.index("prepared")
    assert listener.told[-6:] == ["loss", "loss", "validation", "loss", "loss", "validation"]
    metrics = read_metrics(tmp_path / "run")
    assert [each["step"] for each in metrics] == [1, 2, 2, 3, 4, 4]
    assert isinstance(run, Translator)
    assert metrics[-1]["valid_loss"] == pytest.approx(run.loss(run.examples("valid")), rel=1e-4)
    assert metrics[-1]["valid_perplexity"] == pytest.approx(math.exp(metrics[-1]["valid_loss"]))
    assert len((tmp_path / "run" / "log.txt").read_text(encoding="utf-8").splitlines()) == 6
    assert len(load_file(tmp_path / "run" / "model.safetensors")) == len(list(run.model.named_parameters()))


def test_two_vocabularies_are_kept_apart(tmp_path: Path) -> None:
    apart: dict[str, dict[str, Any]] = {
        "tokenizer": {"joint": False},
        "model": {"tie_source": False, "residual": "post"},
    }
    run = gf.train(table(IDLE, apart), tmp_path / "run")
    assert isinstance(run, Translator)
    assert run.tokenizer is not run.target
    assert {path.name for path in (tmp_path / "run").glob("*tokenizer.json")} == {
        "source.tokenizer.json",
        "target.tokenizer.json",
    }
    loaded = gf.load(tmp_path / "run")
    assert loaded.translate(["a b"]) == run.translate(["a b"])


@pytest.mark.filterwarnings("ignore::glassformer.recipe.RecipeWarning")  # all keys are given
def test_python_trains_what_the_command_line_trains(tmp_path: Path) -> None:
    made = recipe(IDLE)
    first = gf.train(made, tmp_path / "a")
    second = gf.train(made.model_dump(), tmp_path / "b")
    assert all(map(torch.equal, first.model.parameters(), second.model.parameters()))
    with pytest.raises(RunError, match="already holds a run"):
        gf.train(made, tmp_path / "a")
    with pytest.raises(ConfigurationError, match="change the recipe itself"):
        gf.train(made, tmp_path / "c", changes=["train.steps=1"])
    assert gf.train(made, tmp_path / "a", resume=True).path == tmp_path / "a"


def test_measurements_beyond_the_checkpoint_are_forgotten(tmp_path: Path) -> None:
    lines = [json.dumps({"step": step, "loss": 1.0}) for step in (10, 20, 30)]
    (tmp_path / "metrics.jsonl").write_text("\n".join([*lines, '{"step": 4']), encoding="utf-8")
    heard: list[dict[str, Any]] = []
    with recording(tmp_path, 20, heard.append) as log:
        log({"step": 30, "loss": math.nan, "norm": math.inf})
    assert [each["step"] for each in read_metrics(tmp_path)] == [10, 20, 30]
    last = (tmp_path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[-1]
    assert last == '{"step": 30, "loss": null, "norm": null}'  # JSON has no NaN
    assert len(heard) == 1


def test_a_folder_that_cannot_be_written_to_is_told(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="cannot be written to"), recording(tmp_path / "no", 0, lambda _: None):
        pass


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no file that is always full")
def test_a_full_disk_is_told_when_a_measurement_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "log.txt").symlink_to("/dev/full")
    with (
        pytest.raises(TrainingError, match="No space left on device; the checkpoints are intact"),
        recording(tmp_path, 0, lambda _: None) as log,
    ):
        log({"step": 1, "loss": 1.0})


def test_the_cache_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GLASSFORMER_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("GLASSFORMER_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert cache_folder() == Path("/x/glassformer")
    monkeypatch.setenv("XDG_CACHE_HOME", "")  # which is as good as none
    assert cache_folder() == Path.home() / ".cache" / "glassformer"


@pytest.mark.parametrize("line", ['{"step": "x", "loss": 1}', '{"step": 1, "loss": [2]}', "[1]", "3", "\ud800"])
def test_measurements_that_are_none_are_left_out(tmp_path: Path, line: str) -> None:
    good = '{"step": 1, "loss": 2.5, "skipped": 0, "norm": null}'
    (tmp_path / "metrics.jsonl").write_text(f"{good}\n{line}\n{good}\n", encoding="utf-8", errors="surrogatepass")
    assert read_metrics(tmp_path) == [json.loads(good)] * 2


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_weights_that_are_not_finite_are_neither_written_nor_loaded(
    trained: Translator, tmp_path: Path, value: float
) -> None:
    assert trained.path is not None
    folder = shutil.copytree(trained.path, tmp_path / "run")
    model = copy.deepcopy(trained.model)
    next(model.parameters()).data.view(-1)[3] = value
    before = (folder / "model.safetensors").read_bytes()
    with pytest.raises(TrainingError, match=r"weights that are not finite, .* for one: they are not written"):
        write_weights(folder, model)
    assert (folder / "model.safetensors").read_bytes() == before
    save_file({name: tensor.detach().clone() for name, tensor in weights(model).items()}, folder / "model.safetensors")
    (folder / "checksums.json").unlink()
    with pytest.raises(RunError, match=r"its weights are damaged: .* holds numbers that are not finite"):
        gf.load(folder)


@dataclass(frozen=True)
class Scores(Evaluation):
    """Nothing but a loss."""

    loss: float


def test_scores_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(TrainingError, match="here: the loss is not a number"):
        Scores(math.nan).check("here")


def test_large_weights_are_finite() -> None:
    assert not_finite({"large": torch.full((9,), 3e38), "whole": torch.ones(2, dtype=torch.int64)}) is None
    assert not_finite({"fine": torch.ones(2), "bad": torch.tensor([1.0, -math.inf])}) == "bad"


def test_what_a_killed_process_left_of_a_file_goes_when_the_file_is_written_again(tmp_path: Path) -> None:
    dead, alive = tmp_path / f".a.{2**22 - 1}.new", tmp_path / ".a.1.new"  # process 1 is always at work
    for path in (dead, alive, tmp_path / f".b.{2**22 - 1}.new"):
        path.write_text("half", encoding="utf-8")
    write_text(tmp_path / "a", "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".a.1.new", f".b.{2**22 - 1}.new", "a"]


def test_the_current_folder_has_an_unfinished_name_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert unfinished(Path()) == tmp_path.parent / f".{tmp_path.name}.{os.getpid()}.new"


@pytest.mark.parametrize("name", ["tokenizer.json", "checksums.json"])
def test_a_pipe_in_place_of_a_file_is_damage_and_not_waited_for(name: str, trained: Translator, tmp_path: Path) -> None:
    assert trained.path is not None
    run = shutil.copytree(trained.path, tmp_path / "run")
    (run / name).unlink()
    os.mkfifo(run / name)
    threading.Thread(target=lambda: (run / name).open("wb").close(), daemon=True).start()  # whoever opens it goes on
    with pytest.raises(RunError, match=rf"run is damaged: {name} (cannot be read: It is a pipe|is damaged)"):
        gf.load(run)


def test_a_link_that_leads_nowhere_is_no_place_for_a_folder(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(RunError, match="is a link that leads nowhere"):
        check_free(tmp_path / "loop", force=True)


def test_resuming_a_finished_run_keeps_its_weights_though_its_best_checkpoint_is_damaged(tmp_path: Path) -> None:
    made = recipe(IDLE, {"train": {"lr": 3.0, "keep": 5}})  # the loss rises, so that the last weights are not the best
    train(made, tmp_path / "run")
    before = (tmp_path / "run" / "model.safetensors").read_bytes()
    last = load_file(tmp_path / "run" / "checkpoints" / "step-00000004" / "model.safetensors")
    assert any((last[name] != value).any() for name, value in load_file(tmp_path / "run" / "model.safetensors").items())
    (tmp_path / "run" / "checkpoints" / "step-00000002" / "state.json").write_text("", encoding="utf-8")
    train(made, tmp_path / "run", resume=True)
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == before
    assert gf.load(tmp_path / "run", "cpu").translate(["a b"])


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("left", [{"config.json"}, {"config.json", "tokenizer.json"}, {"config.json", "data.json"}])
def test_a_beginning_that_was_cut_off_is_begun_again(tmp_path: Path, resume: bool, left: set[str]) -> None:
    asked, out = recipe(IDLE, {"train": {"steps": 2}}), tmp_path / "run"
    whole = weights(train(asked, out).model)
    for path in out.iterdir():
        if path.name not in left:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    again = weights(train(asked, out, resume=resume).model)
    assert all(torch.equal(whole[name], again[name]) for name in whole)


def test_a_finished_run_that_is_to_be_trained_longer_is_unfinished_until_it_has_been(tmp_path: Path) -> None:
    """Its old weights must not be taken for the new ones after a kill."""
    more = recipe(IDLE, {"train": {"steps": 4, "schedule": "constant"}})
    whole = weights(train(more, tmp_path / "whole").model)
    asked, out = recipe(IDLE, {"train": {"steps": 2, "schedule": "constant"}}), tmp_path / "run"
    train(asked, out)

    class Killed(Exception):  # noqa: N818
        pass

    class Killing(Listener):
        def log(self, record: dict[str, Any]) -> None:
            if record["step"] == 4 and "valid_loss" in record:
                raise Killed

    with pytest.raises(Killed):
        train(more, out, resume=True, listener=Killing())
    assert not (out / "model.safetensors").exists()
    found = weights(train(more, out, resume=True).model)
    assert all(torch.equal(whole[name], found[name]) for name in whole)
