"""Ensembles as a user types them: several runs that write together, and every pair of runs that cannot."""

from __future__ import annotations

import json
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import glassformer as gf
from every_task import EveryTask
from glassformer.errors import ConfigurationError, InputError
from glassformer.recipe import Recipe, make_recipe, to_toml
from glassformer.runs import export_run, train
from glassformer.tasks.translation import Translator
from tiny import IDLE, recipe, table

from .helpers import Command, complains

LINES = ["a b c", "", "h", "e f g h", "d d"]
Runs = list[Translator]


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Runs:
    """Runs that have learned next to nothing: two seeds, and an LSTM."""
    folder, few = tmp_path_factory.mktemp("ensemble"), {"steps": 30, "validate_every": 10, "save_every": 10}
    recipes: list[Recipe] = [
        recipe({"train": {**few, "seed": 0}, "decode": {"beam": 3}}),
        recipe({"train": {**few, "seed": 1}}),
        make_recipe({**table({"train": few}), "model": {"family": "recurrent", "width": 24}}),
    ]
    return [train(each, folder / name) for each, name in zip(recipes, "abc", strict=True)]  # type: ignore[misc]


def several(runs: Runs) -> list[str]:
    return [word for run in runs for word in ("--run", str(run.path))]


def changed(run: Translator, folder: Path, old: str, new: str) -> Path:
    """A copy of a run with something else in its recipe."""
    assert run.path is not None
    copied = shutil.copytree(run.path, folder / "changed")
    text = (copied / "recipe.toml").read_text(encoding="utf-8")
    assert old in text
    (copied / "recipe.toml").write_text(text.replace(old, new), encoding="utf-8")
    return copied


def test_several_runs_translate_together(runs: Runs, command: Command, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("\n".join(LINES), encoding="utf-8")
    for some in (runs[:2], runs):
        answer = command("translate", *several(some), "--file", tmp_path / "in.txt")
        assert (answer.code, answer.err) == (0, "")
        together = gf.ensemble(some)
        assert answer.out.splitlines() == [each.text for each in together.translate(LINES)]
        assert [each.text for each in together.translate(LINES)] == [
            each.text
            for each in together.translate(LINES, beam=3)  # the first run's [decode]
        ]
    rows = command("translate", *several(runs), "--nbest", "2", "--json", "e f").out.splitlines()
    assert len(json.loads(rows[0])["outputs"]) == 2
    assert command("translate", *several(runs), "--stream", "--beam", "1", "e f").code == 0
    assert command("transform", *several(runs), "--int8", "e f").code == 0


def test_the_same_run_twice_is_the_run(trained: Translator, command: Command) -> None:
    twice = ["--run", trained.path, "--run", trained.path]
    asked = ["translate", "--beam", "3", "--nbest", "3", "a b c d"]
    one, two = command(*asked, "--run", trained.path), command(*asked, *twice)
    assert [line.split("\t")[2] for line in two.out.splitlines()] == [
        line.split("\t")[2] for line in one.out.splitlines()
    ]
    for mean in ("probabilities", "log-probabilities"):
        found = json.loads(command("evaluate", *twice, "--mean", mean, "--json").out)
        alone = json.loads(command("evaluate", "--run", trained.path, "--json").out)
        assert found["loss"] == pytest.approx(alone["loss"], abs=1e-5)
        assert found["exact"] == alone["exact"]


def test_an_evaluation_says_of_which_runs_it_is_and_draws_nothing(runs: Runs, command: Command) -> None:
    before = {path: path.stat().st_mtime_ns for run in runs for path in Path(run.path or "").rglob("*")}
    answer = command("evaluate", *several(runs))
    first, second, *_ = answer.out.splitlines()
    paths = [str(run.path) for run in runs]
    assert first == f"3 runs together, by the mean of probabilities: {', '.join(paths)}"
    assert second.endswith(" pairs")
    found = json.loads(command("evaluate", *several(runs), "--json", "--mean", "log-probabilities").out)
    assert (found["runs"], found["mean"]) == (paths, "log-probabilities")
    assert {path: path.stat().st_mtime_ns for run in runs for path in Path(run.path or "").rglob("*")} == before


def test_the_loss_is_that_of_the_mean(runs: Runs) -> None:
    examples = runs[0].examples()[:40]
    losses = [run.loss(examples) for run in runs]
    found = gf.ensemble(runs).loss(examples)  # type: ignore[attr-defined]
    assert min(losses) - 0.05 < found < max(losses)  # -log is convex: the mean loses less than the members on average
    assert found < sum(losses) / 3
    assert gf.ensemble(runs).loss(examples, int8=True) == pytest.approx(found, abs=0.05)  # type: ignore[attr-defined]


def test_checkpoints_are_those_of_each_run(runs: Runs, command: Command) -> None:
    answer = command("translate", *several(runs[:2]), "--checkpoint", "20", "a b")
    assert answer.code == 0
    some = [gf.load(str(run.path), checkpoint=20) for run in runs[:2]]
    assert answer.out.strip() == gf.ensemble(some).translate(["a b"])[0].text.strip()
    complains(command("translate", *several(runs[:2]), "--checkpoint", "7", "a b"), 2, "7")
    averaged = gf.ensemble([gf.load(str(runs[0].path), checkpoint=step) for step in (10, 20, 30)])
    assert len(averaged.translate(["a b"])) == 1


def test_examples_that_a_run_may_have_learned_from_are_refused(runs: Runs, command: Command, tmp_path: Path) -> None:
    other = changed(runs[1], tmp_path, "", "")
    (other / "checksums.json").unlink()
    with (other / "test.jsonl").open("a", encoding="utf-8") as file:
        file.write('["a b", "a b"]\n')
    words = ["--run", runs[0].path, "--run", other]
    told = f"{other} did not keep the test examples of {runs[0].path}"
    complains(command("evaluate", *words), 2, told, "--data")
    (tmp_path / "mine.tsv").write_text("a b\ta b\nc\tc\n", encoding="utf-8")
    assert command("evaluate", *words, "--data", tmp_path / "mine.tsv").out.splitlines()[1] == "2 pairs"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("max_tokens = 64", "max_tokens = 32", "data.max_tokens is 32 in"),
        ("strip = true", "strip = false", "data.strip is False in"),
        ('normalise = "nfc"', 'normalise = "none"', "data.normalise is none in"),
    ],
)
def test_runs_that_read_texts_otherwise_are_refused(
    runs: Runs, command: Command, tmp_path: Path, old: str, new: str, words: str
) -> None:
    copied = changed(runs[1], tmp_path, old, new)
    answer = command("translate", *several(runs[:1]), "--run", copied, "a b")
    complains(answer, 2, f"{words} {copied}, but ", str(runs[0].path), "must agree on it")


def test_runs_with_other_tokens_or_another_task_are_refused(
    runs: Runs, command: Command, tmp_path: Path, every_task: EveryTask
) -> None:
    letters = train(recipe(IDLE, {"source": {"symbols": 12}}), tmp_path / "letters")
    answer = command("translate", *several(runs), "--run", letters.path, "a b")
    complains(answer, 2, f"{letters.path} has another tokenizer of the source than {runs[0].path}")
    language = every_task("gpt2")
    answer = command("translate", *several(runs[:1]), "--run", language.path, "a b")
    complains(answer, 2, f"{language.path} was trained for language-modelling, but {runs[0].path} for translation")
    labels = every_task("classification")
    for words in (["translate", "a"], ["evaluate"]):
        answer = command(*words, "--run", labels.path, "--run", labels.path)
        complains(answer, 2, f"{labels.path} was trained for classification: only runs that write text")


def test_every_task_that_writes_does_so_together(every_task: EveryTask, command: Command, tmp_path: Path) -> None:
    image = tmp_path / "image.png"
    Image.fromarray(np.zeros((32, 32, 3), np.uint8)).save(image)
    asked: dict[str, list[list[str | Path]]] = {
        "gpt2": [["generate", "the red", "--temperature", "0", "--length", "5"], ["choose", "the", "red cow", "moo"]],
        "spans": [["fill", "the <extra_id_0> cow"]],
        "captioning": [["caption", image]],
    }
    for name, some in asked.items():
        path = every_task(name).path
        twice = ["--run", path, "--run", path]
        for words in some:
            assert command(*words, *twice).out == command(*words, "--run", path).out != ""
        found, alone = (json.loads(command("evaluate", *each, "--json").out) for each in (twice, twice[:2]))
        assert found["loss"] == pytest.approx(alone["loss"], abs=1e-4)
    mixed = ["--run", every_task("gpt2").path, "--run", every_task("llama").path]
    assert command("generate", "the red", "--length", "5", "--beam", "2", *mixed).out.startswith("the red")
    assert command("generate", "the red", "--length", "5", "--stream", "--seed", "3", *mixed).code == 0


def test_what_takes_one_run_refuses_several(runs: Runs, command: Command, tmp_path: Path) -> None:
    two = several(runs[:2])
    for words in (["look", "a b"], ["classify", "a"], ["report"], ["export", tmp_path / "out"], ["look", "--born"],
                  ["embed", "a"], ["tag", "a"]):  # fmt: skip
        complains(command(*words, *two), 2, f"{words[0]} works with one run, but --run names 2: name one")
    complains(command("translate", *two, "--adapter", tmp_path, "a"), 2, "an adapter is for the model of one run")
    complains(command("translate", *two, "--mean", "median", "a"), 2, "not of 'median'")
    complains(command("translate", *two[:2], "--mean", "probabilities", "a"), 2, "the mean is that of several runs")
    complains(command("translate", *two, "--run", tmp_path / "none", "a"), 2, f"{tmp_path / 'none'}: there is no such")


def test_in_python(runs: Runs, tmp_path: Path) -> None:
    paths = [str(run.path) for run in runs]
    together = gf.load(paths, "cpu")
    assert [each.text for each in together.translate(LINES)] == [
        each.text for each in gf.ensemble(runs).translate(LINES)
    ]
    assert gf.load(paths[:1]).model.__class__ is runs[0].model.__class__
    refused: list[tuple[Callable[[], Any], str]] = [
        (lambda: together.look("a b"), "an ensemble of 3 models cannot be looked into"),
        (lambda: gf.points(together), "an ensemble of 3 models cannot be looked into"),
        (lambda: gf.ensemble([together, runs[0]]), "is an ensemble already"),
        (lambda: export_run(together, tmp_path / "out"), "an ensemble is no single model"),
    ]
    for call, words in refused:
        with pytest.raises(InputError, match=words):
            call()
    with pytest.raises(ConfigurationError, match="needs one run at least"):
        gf.ensemble([])
    assert tomllib.loads(to_toml(together.recipe))["decode"]["beam"] == 3
