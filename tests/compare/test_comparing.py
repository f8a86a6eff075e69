"""Comparing: the same data, tokens and seeds; what is done is used; what cannot be compared is told."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from glassformer.compare.comparing import Comparison, Entry, compare, entries_of
from glassformer.compare.report import columns, rows, sentences, write_report
from glassformer.compare.worker import Tell, train_in_process
from glassformer.errors import ConfigurationError, InputError, RunError
from glassformer.recipe import Recipe, make_recipe, read_recipe, to_toml
from glassformer.runs import load, train
from glassformer.runs.metrics import read_metrics
from tiny import IDLE, recipe, table

Compared = tuple[Path, Comparison, list[str]]
LARGE: dict[str, dict[str, Any]] = {"model": {"width": 32}, "train": {"batch_tokens": 256}}


class Counting:
    """Trains in this process, and remembers what."""

    def __init__(self, stop: int | None = None) -> None:
        self.trained: list[tuple[str, bool]] = []
        self.stop = stop

    def __call__(self, asked: Recipe, out: Path, resume: bool, tell: Tell) -> None:
        self.trained.append((out.name, resume))
        if len(self.trained) == self.stop:
            half = asked.train.model_copy(update={"steps": 2, "tokens": None})
            train(asked.model_copy(update={"train": half}), out)
            (out / "model.safetensors").unlink()
            (out / "recipe.toml").write_text(to_toml(asked), encoding="utf-8")
            raise KeyboardInterrupt
        tell("training", 1, 2)
        train(asked, out, resume=resume)


def entries() -> list[Entry]:
    return [Entry("small", recipe(IDLE)), Entry("large", recipe(IDLE, LARGE))]


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Compared:
    out, told = tmp_path_factory.mktemp("compared"), list[str]()
    facts = compare(
        entries(), out, [0, 1], examples=40, split="valid", tell=lambda *each: told.append(each[0]), train=Counting()
    )
    return out, facts, told


def test_all_get_the_same_tokens_and_seeds(compared: Compared) -> None:
    _, facts, told = compared
    assert [(run.name, run.seed) for run in facts.runs] == [(n, s) for n in ("small", "large") for s in (0, 1)]
    assert facts.tokens == facts.runs[0].tokens
    for run in facts.runs:
        assert abs(run.tokens - facts.tokens) <= run.tokens / run.steps * 1.3
    budgets = [read_recipe(Path(run.folder) / "recipe.toml").train.tokens for run in facts.runs]
    assert budgets == [None, facts.tokens, facts.tokens, facts.tokens]  # the first run of all decides
    assert facts.runs[2].steps > facts.runs[0].steps == 4  # smaller batches, more of them
    assert facts.notes == []
    assert "run 3 of 4, large, seed 0: training" in told
    assert [run.p is None for run in facts.runs] == [True, True, False, False]


def test_the_numbers_are_the_runs_own(compared: Compared) -> None:
    out, facts, _ = compared
    assert json.loads((out / "comparison.json").read_text(encoding="utf-8")) == asdict(facts)
    first = facts.runs[0]
    metrics = read_metrics(out / "runs" / "small-seed0")
    curve = first.curves["validation"]
    assert curve.loss == [each["valid_loss"] for each in metrics if "valid_loss" in each]
    assert curve.steps == [2, 4]
    assert curve.tokens[-1] == first.tokens
    assert first.curves["training"].loss == [each["loss"] for each in metrics if "loss" in each]
    assert first.parameters == sum(parameter.numel() for parameter in load(first.folder).model.parameters())
    assert first.low <= first.score <= first.high
    assert len(first.by_length) == len(facts.lengths) > 0
    assert facts.signature.startswith("nrefs:1|bs:1000")


def test_what_is_done_is_used_and_what_was_stopped_goes_on(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        compare(entries(), tmp_path, tokens=800, examples=20, split="valid", train=Counting(stop=2))
    again = Counting()
    facts = compare(entries(), tmp_path, tokens=800, examples=20, split="valid", train=again)
    assert again.trained == [("large-seed0", True)]
    assert facts.runs[0].tokens >= 800
    third = Counting()
    assert compare(entries(), tmp_path, tokens=800, examples=20, split="valid", train=third) == facts
    assert third.trained == []
    with pytest.raises(RunError, match=r"small-seed0 was trained with another \[train\]"):
        compare(entries(), tmp_path, tokens=900, split="valid", train=third)


def test_finished_runs_are_taken_as_they_are(compared: Compared, tmp_path: Path) -> None:
    out, facts, _ = compared
    names = [str(out / "runs" / f"{name}-seed0") for name in ("small", "large")]
    again = compare(entries_of(names), tmp_path, examples=40, split="valid")
    for key in ("score", "low", "high", "p", "tokens", "loss"):
        assert [getattr(run, key) for run in again.runs] == [getattr(facts.runs[row], key) for row in (0, 2)]
    more = compare(entries_of(names), tmp_path, tokens=10_000, examples=40, split="valid")
    assert more.notes[0].startswith("small-seed0, seed 0, was trained on")


def test_the_report_is_one_file_and_says_all(compared: Compared, tmp_path: Path) -> None:
    _, facts, _ = compared
    facts = replace(facts, notes=["a <note>"])
    write_report(facts, tmp_path)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert page.count("<tr>") == 5
    assert "a &lt;note&gt;" in page
    assert "<svg" in page
    assert "src=" not in page
    assert "<script" not in page
    assert "<link" not in page
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert [len(row) for row in rows(facts)] == [len(columns(facts))] * 4
    assert sentences(facts)[-1] == "a <note>"
    write_report(replace(facts, lengths=[]), tmp_path)  # as of images


@pytest.mark.parametrize(
    ("other", "complaint"),
    [
        ({"source": {"count": 300}}, "have different data: source.count is 200 in one, 300 in the other"),
        ({"data": {"max_ratio": 3.0}}, "have different data: data.max_ratio is None in one, 3.0 in the other"),
        ({"task": {"kind": "span-corruption"}}, "one is for translation, other for span-corruption"),
    ],
)
def test_different_data_or_tasks_are_told_before_anything_starts(
    other: dict[str, dict[str, Any]], complaint: str, tmp_path: Path
) -> None:
    tables = {"one": table(IDLE), "other": {**table(IDLE), "task": {"kind": "translation"}}}
    for name, section in other.items():
        tables["other"][name] = {**tables["other"][name], **section}
    if "task" in other:
        tables["other"]["source"] = {"kind": "text", "train": "t.txt"}
    for name, each in tables.items():
        (tmp_path / f"{name}.toml").write_text(to_toml(make_recipe(each)), encoding="utf-8")
    with pytest.raises(ConfigurationError, match=complaint):
        entries_of([str(tmp_path / "one.toml"), str(tmp_path / "other.toml")])


def test_other_examples_split_off_are_different_data(tmp_path: Path) -> None:
    for seed in (0, 5):
        asked = {**table(IDLE), "source": {"kind": "tsv", "train": "t.tsv"}, "data": {"max_tokens": 64, "seed": seed}}
        (tmp_path / f"seed{seed}.toml").write_text(to_toml(make_recipe(asked)), encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"have different data: data\.seed is 0 in one, 5 in the other"):
        entries_of([str(tmp_path / "seed0.toml"), str(tmp_path / "seed5.toml")])


def test_recipes_that_build_the_same_model_are_named(tmp_path: Path) -> None:
    """What a recipe spells out and what a family does by itself can be the same model: then the training differs."""
    spelled = {"residual": "pre", "tie_output": True, "decoder_layers": 1, "key_value_heads": 2}
    faster: dict[str, dict[str, Any]] = {"model": spelled, "train": {"lr": 1e-2}}
    asked: dict[str, dict[str, dict[str, Any]]] = {"slow": {}, "fast": faster, "large": LARGE}
    sides = [Entry(name, recipe(IDLE, change)) for name, change in asked.items()]
    found = compare(sides, tmp_path, [0, 1], examples=20, split="valid", train=Counting())
    assert [note for note in found.notes if "same model" in note] == ["slow and fast build the same model."]
    assert "slow and fast build the same model." in sentences(found)


def test_bad_words_are_told(compared: Compared, tmp_path: Path) -> None:
    out = compared[0] / "runs"
    with pytest.raises(ConfigurationError, match="two recipes or runs, or more"):
        entries_of(["dates"])
    with pytest.raises(ConfigurationError, match="dates and dates are both called dates"):
        entries_of(["dates", "dates"])
    with pytest.raises(RunError, match="is not a run folder"):
        entries_of(["dates", str(tmp_path)])
    with pytest.raises(ConfigurationError, match=r"have different data: source\.kind"):
        entries_of(["dates", str(out / "small-seed0")])
    twin = train(recipe(IDLE, {"source": {"seed": 9}}), tmp_path / "twin")
    sides = [Entry("a", twin.recipe, out / "small-seed0"), Entry("b", twin.recipe, tmp_path / "twin")]
    with pytest.raises(InputError, match="a and b cannot be compared: their valid examples differ"):
        compare(sides, tmp_path / "out", split="valid")


def test_without_held_out_examples_there_is_nothing_to_compare_on(compared: Compared, tmp_path: Path) -> None:
    names = [copytree(compared[0] / "runs" / f"{name}-seed0", tmp_path / name) for name in ("small", "large")]
    for name in names:
        (name / "test.jsonl").write_text("", encoding="utf-8")
    with pytest.raises(InputError, match=r"no run has test examples; set data\.test, or --split"):
        compare(entries_of([*map(str, names)]), tmp_path / "out")


def test_a_budget_of_tokens_is_a_number_of_steps(tmp_path: Path) -> None:
    asked = recipe(IDLE, {"train": {"tokens": 1000, "log_every": 1}})
    train(asked, tmp_path / "run")
    logs = [each for each in read_metrics(tmp_path / "run") if "tokens" in each]
    assert logs[-1]["tokens"] >= 1000 > logs[-2]["tokens"]


def test_a_training_apart_is_the_same_training(tmp_path: Path) -> None:
    told = list[tuple[str, int, int | None]]()
    asked = recipe(IDLE)
    train_in_process(asked, tmp_path / "apart", False, lambda *each: told.append(each))
    train(asked, tmp_path / "here")
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("apart", "here")]
    assert weights[0] == weights[1]
    assert told[-1] == ("training", 4, 4)
    with pytest.raises(InputError, match="already holds a run"):
        train_in_process(asked, tmp_path / "apart", False, lambda *each: None)
