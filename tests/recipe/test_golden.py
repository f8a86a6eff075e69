"""Golden losses: the first steps of every recipe that ships, on small data of our own, stay what they were.

What should not change results keeps them; what should, writes them anew and says so in docs/decisions.md:

    python -m pytest tests/recipe/test_golden.py --golden=write
"""

import json
import math
from pathlib import Path
from typing import Any

import pytest

import questions
import stories
from glassformer.recipe import bundled, make_recipe
from glassformer.recipe.reading import read_table
from glassformer.runs import train
from glassformer.runs.metrics import read_metrics
from labels import examples, table

GOLDEN = Path(__file__).with_name("golden.json")
# Sources that are the same everywhere.
OWN = ("copy", "reverse", "sort", "dates", "grammar", "digits", "seasons", "activities", "scenes")
CLOSE = 1e-3  # relative: processors round differently, and the optimiser makes more of it
SMALL: dict[str, dict[str, Any]] = {
    "data": {"max_tokens": 48, "valid": 0.0, "test": 0.0},
    "train": {
        "steps": 3, "batch_tokens": 256, "log_every": 1, "save_every": 9, "validate_every": 9, "average": 0,
        "warmup": 2, "device": "cpu", "precision": "float32", "validate_sentences": 1,
    },
}  # fmt: skip


def small(name: str, folder: Path) -> dict[str, Any]:
    """A recipe that ships with our data, small batches and three steps; its model and the rest are its own."""
    asked = read_table(bundled()[name])
    kind = asked.get("task", {}).get("kind", "translation")
    changes = {section: dict(values) for section, values in SMALL.items()}
    if asked["source"]["kind"] not in OWN:
        asked["source"] = source(kind, folder)
    if kind in ("images", "captioning"):
        changes["train"]["batch_tokens"] = 16
    if kind == "captioning":
        changes["source"] = {"count": 100}
    if kind in ("images", "forecasting", "series-classification"):
        del changes["data"]["max_tokens"]
    else:
        given = asked.get("tokenizer", {})  # what a unigram tokenizer learns differs from time to time
        changes["tokenizer"] = {"vocabulary": 400, **({"kind": "bpe"} if given.get("kind") == "unigram" else {})}
    if "pretrained" in asked["model"]:
        asked["model"] = {"width": 64, "heads": 2, "layers": 2, "hidden": 128}
        asked.pop("tune", None)
        changes["tokenizer"]["kind"] = "bpe"
    if kind == "answering":
        asked["task"] |= {"stride": 8, "max_question": 12, "max_answer": 4}
    for key in ("tokens", "minutes", "compile"):
        asked["train"].pop(key, None)
    asked["data"] = {key: value for key, value in asked.get("data", {}).items() if key != "workers"}
    return {name: {**asked.get(name, {}), **changes.get(name, {})} for name in {**asked, **changes} if name != "title"}


def source(kind: str, folder: Path) -> dict[str, Any]:
    """Data of ours for a task."""
    if kind in ("translation", "embedding"):
        rows = [(f"the number {number:b}", f"die Zahl {number:x}") for number in range(200)]
        return {"kind": "tsv", "train": str(table(folder / "pairs.tsv", rows))}
    if kind == "classification":
        return {"kind": "tsv", "train": str(table(folder / "labels.tsv", examples(200)))}
    if kind == "answering":
        return {"kind": "squad", "train": str(questions.written(folder / "questions.json", questions.paragraphs(60)))}
    return {"kind": "text", "train": str(stories.stories(folder / "stories.txt"))}


@pytest.mark.filterwarnings("ignore::glassformer.recipe.RecipeWarning")
@pytest.mark.parametrize("name", bundled())
def test_the_first_losses_are_what_they_were(name: str, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    train(make_recipe(small(name, tmp_path)), tmp_path / "run")
    losses = [each["loss"] for each in read_metrics(tmp_path / "run") if "lr" in each]
    assert len(losses) == 3
    assert all(map(math.isfinite, losses))
    known = json.loads(GOLDEN.read_text(encoding="utf-8")) if GOLDEN.is_file() else {}
    if pytestconfig.getoption("golden") == "write":
        known[name] = losses
        text = ",\n".join(f"{json.dumps(each)}: {json.dumps(known[each])}" for each in sorted(known))
        GOLDEN.write_text(f"{{\n{text}\n}}\n", encoding="utf-8")
    assert losses == pytest.approx(known[name], rel=CLOSE)
