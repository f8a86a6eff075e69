"""What an experiment leaves behind: whole folders, pages that say what was found, and sentences where that fails."""

import csv
import json
import os
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from glassformer.cli.app import main
from glassformer.errors import InputError, TrainingError
from glassformer.experiments import EXPERIMENTS, Experiment, Finding, find, report
from glassformer.experiments.finding import Spread

FILES = {"figure.png", "figure.svg", "data.csv", "report.md", "finding.json"}
FINDING = Finding(
    method="Two were counted.",
    measured="There were 2 < 3.",
    holds=True,
    facts={"counted": 2.0},
    rows=[{"what": "a, b", "much": 1 / 3}, {"what": "c", "more": 2}],
    draw=Figure,
)
COUNTING = Experiment("counting", "Two is less than three.")


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_folder_holds_the_figure_the_numbers_and_the_page(tmp_path: Path) -> None:
    result = report.write(COUNTING, FINDING, 7, tmp_path / "new" / "counting")
    folder = tmp_path / "new" / "counting"
    assert names(folder) == FILES
    page = (folder / "report.md").read_text(encoding="utf-8")
    for part in (COUNTING.claim, FINDING.measured, FINDING.method, "figure.svg", "experiment counting --seed 7", "Yes"):
        assert part in page
    with (folder / "data.csv").open(encoding="utf-8", newline="") as file:
        assert [*csv.DictReader(file)] == [
            {"what": "a, b", "much": "0.333333", "more": ""},
            {"what": "c", "much": "", "more": "2"},
        ]
    assert report.read(folder) == result
    assert result.facts == FINDING.facts


def test_the_same_finding_is_the_same_file(tmp_path: Path) -> None:
    for name in ("a", "b"):
        report.write(COUNTING, FINDING, 0, tmp_path / name)
    for name in FILES:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name


def test_a_claim_that_does_not_hold_is_said_not_to(tmp_path: Path) -> None:
    report.write(COUNTING, replace(FINDING, holds=False), 0, tmp_path)
    assert "does not hold as the notes say" in (tmp_path / "report.md").read_text(encoding="utf-8")


def test_several_seeds_are_said_and_their_range_is_written(tmp_path: Path) -> None:
    finding = replace(FINDING, seeds=[3, 4, 5], facts={"counted": Spread([1.0, 2.0, 6.0])})
    result = report.write(COUNTING, finding, 1, tmp_path)
    assert result.facts == {"counted": 3.0, "counted, lowest": 1.0, "counted, highest": 6.0}
    assert report.read(tmp_path) == result
    assert "3 times, with the seeds 3, 4 and 5." in (tmp_path / "report.md").read_text(encoding="utf-8")


def test_what_fails_halfway_is_not_taken_for_done(tmp_path: Path) -> None:
    report.write(COUNTING, FINDING, 0, tmp_path)

    def fail() -> Figure:
        raise RuntimeError("no ink")

    with pytest.raises(RuntimeError, match="no ink"):
        report.write(COUNTING, replace(FINDING, draw=fail), 0, tmp_path)
    assert report.read(tmp_path) is None


@pytest.mark.parametrize("words", [["dot-product-variance"], ["--all"]])
def test_a_file_in_the_way_is_said_to_be_before_anything_is_tried(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="file is a file: choose a folder"):
        report.write(COUNTING, FINDING, 0, tmp_path / "file")
    monkeypatch.setattr(Experiment, "run", lambda *_: pytest.fail("it was tried"))
    with pytest.raises(SystemExit) as end:
        main(["experiment", *words, "--out", str(tmp_path / "file")])
    assert end.value.code == 2
    assert "file is a file: choose a folder" in capsys.readouterr().err


def test_one_experiment_is_not_written_over_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report.write(COUNTING, FINDING, 0, tmp_path)
    monkeypatch.setattr(Experiment, "run", lambda *_: pytest.fail("it was tried"))
    with pytest.raises(SystemExit) as end:
        main(["experiment", "dot-product-variance", "--out", str(tmp_path)])
    assert end.value.code == 2
    said = f"{tmp_path} holds the experiment {COUNTING.name}: choose another folder"
    assert said in " ".join(capsys.readouterr().err.split())
    assert report.read(tmp_path) is not None


@pytest.fixture
def three(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gallery of three experiments."""
    made = {name: Experiment(name, f"Claim <{name}>.") for name in ("one", "two", "three")}
    monkeypatch.setattr(report, "EXPERIMENTS", made)


@pytest.mark.usefixtures("three")
def test_one_that_fails_does_not_lose_the_others_and_is_tried_again(tmp_path: Path) -> None:
    tried: list[str] = []

    def perform(each: Experiment) -> Finding:
        tried.append(each.name)
        if each.name == "two" and len(tried) == 2:
            raise ValueError("a hiccup")
        return FINDING

    with pytest.raises(TrainingError, match=r"1 of 3 experiments failed: two \(ValueError: a hiccup\)"):
        report.build(tmp_path, 0, perform)
    assert names(tmp_path) == {"one", "three", "index.md", "index.html"}
    assert [each.name for each in report.build(tmp_path, 0, perform)] == ["one", "two", "three"]
    assert tried == ["one", "two", "three", "two"]
    report.build(tmp_path, 0, perform, again=True)
    report.build(tmp_path, 1, perform)
    assert len(tried) == 4 + 3 + 3  # another seed is another gallery
    for page, claim in (("index.md", "Claim <two>."), ("index.html", "Claim &lt;two&gt;.")):
        text = (tmp_path / page).read_text(encoding="utf-8")
        assert text.count("figure.svg") == 3
        assert claim in text


def test_an_experiment_leaves_the_callers_dice_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from glassformer.experiments import dot_product_variance

    monkeypatch.setattr(dot_product_variance, "run", lambda trial: torch.rand(3).tolist())
    before = torch.get_rng_state()
    drawn: Any = EXPERIMENTS["dot-product-variance"].run(seed=3)
    assert drawn == EXPERIMENTS["dot-product-variance"].run(seed=3)
    assert drawn != EXPERIMENTS["dot-product-variance"].run(seed=4)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_command_writes_a_folder_and_says_what_was_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        main(["experiment", "dot-product-variance", "--seed", "2", "--json"])
    assert end.value.code == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["holds"] is True
    assert facts["seed"] == 2
    assert facts["seconds"] > 0
    assert names(tmp_path / facts["folder"]) == FILES
    assert facts["folder"] == os.path.join("runs", "experiments", "dot-product-variance")  # noqa: PTH118


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["dot-product"], 'there is no experiment "dot-product": did you mean dot-product-variance?'),
        ([], "name an experiment, or give --all, but not both"),
        (["dot-product-variance", "--all"], "name an experiment, or give --all, but not both"),
        (["dot-product-variance", "--again"], "--again goes with --all"),
    ],
)
def test_a_wrong_word_gets_a_sentence(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["experiment", *words])
    assert end.value.code == 2
    assert said in capsys.readouterr().err


def test_the_list_names_all(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["experiment", "--list"])
    assert end.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [*EXPERIMENTS]
    assert all(find(name).claim.endswith(".") for name in EXPERIMENTS)


def test_to_list_experiments_does_not_import_torch() -> None:
    script = (
        "import sys; from glassformer.experiments import EXPERIMENTS; "
        "assert len(EXPERIMENTS) >= 15; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)  # noqa: S603


def test_every_experiment_has_a_place_of_its_own_in_the_story() -> None:
    modules = [import_module(f"glassformer.experiments.{name.replace('-', '_')}") for name in EXPERIMENTS]
    orders = [module.ORDER for module in modules]
    assert orders == sorted({*orders})
    assert [module.CLAIM for module in modules] == [each.claim for each in EXPERIMENTS.values()]
