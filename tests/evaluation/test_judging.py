"""Judging: what each kind of run scores on each example adds up to what it says of all of them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import glassformer as gf
import questions
import stories
from captions import caption_recipe
from glassformer.errors import InputError
from glassformer.evaluation.judging import by_length, estimates
from glassformer.registry import TASKS
from glassformer.runs.metrics import read_metrics
from glassformer.tasks.run import Run
from glassformer.tasks.translation import Translator
from labels import examples, folder_of_bars, image_recipe, table, text_recipe

FEW: dict[str, Any] = {"steps": 2, "validate_every": 2}


def made(kind: str, folder: Path) -> Any:
    text = stories.stories(folder / "t.txt", 60)
    recipes: dict[str, Callable[[], dict[str, Any]]] = {
        "classification": lambda: text_recipe(table(folder / "t.tsv", examples(80)), train=FEW),
        "images": lambda: image_recipe(folder_of_bars(folder / "images", 20), train=FEW),
        "captioning": lambda: (
            caption_recipe(Path(), source={"kind": "scenes", "count": 40, "size": 16}, train=FEW)
            | {"source": {"kind": "scenes", "count": 40, "size": 16}}
        ),
        "answering": lambda: questions.recipe(
            questions.written(folder / "q.json", questions.paragraphs(30)), train=FEW
        ),
        "tagging": lambda: {
            "task": {"kind": "tagging"},
            "source": {"kind": "grammar", "count": 80},
            "tokenizer": {"kind": "word", "vocabulary": 100},
            "model": {"family": "recurrent", "width": 16, "layers": 1},
            "data": {"test": 0.2},
            "train": FEW,
        },
        "language-modelling": lambda: stories.recipe(text, kind, train=FEW),
        "masked-language-modelling": lambda: stories.recipe(text, kind, train=FEW),
        "span-corruption": lambda: stories.recipe(text, kind, train=FEW),
    }
    return gf.train(recipes[kind](), folder / "run")


TOTALS = {
    "classification": lambda found: 100 * found.scores.accuracy,
    "images": lambda found: 100 * found.scores.accuracy,
    "captioning": lambda found: 100 * found.accuracy,
    "tagging": lambda found: 100 * found.scores.accuracy,
    "answering": lambda found: 100 * found.scores.f1,
    "language-modelling": lambda found: found.bits_per_byte,
}


@pytest.mark.parametrize("kind", [*TOTALS, "masked-language-modelling", "span-corruption"])
def test_each_kind_of_run_is_judged_example_by_example(kind: str, tmp_path: Path) -> None:
    run = made(kind, tmp_path)
    held_out, seen = run.examples("test"), list[tuple[int, int]]()
    judged = run.judge(held_out, lambda done, of: seen.append((done, of)))
    assert len(judged.values) == len(judged.weights) == len(held_out)
    assert seen[-1][0] == seen[-1][1]
    (found,), signature = estimates([judged])
    assert found.low <= found.value <= found.high
    assert signature == ""
    whole = judged.value(range(len(held_out)))
    assert whole == pytest.approx(found.value)
    if kind in TOTALS:
        assert whole == pytest.approx(TOTALS[kind](run.evaluate(held_out)), rel=1e-4)
    else:  # other tokens are hidden of a text by itself than of texts together
        assert whole == pytest.approx(run.evaluate(held_out).loss, rel=0.2)
    evaluated, metrics = run.evaluate(held_out), read_metrics(run.path)
    scores = evaluated.summary()
    scores["macro_f1" if hasattr(evaluated, "labels") else "f1"] = scores.get("f1", 0.0)
    assert len(evaluated.intervals) >= 2
    for name, (low, high) in evaluated.intervals.items():
        assert low <= scores.get(name, low) <= high
        assert "nan" not in f"{low} {high}"
    assert any("  [" in line for line in evaluated.lines())
    if "loss" in evaluated.intervals:
        assert evaluated.intervals["loss"][0] < evaluated.loss < evaluated.intervals["loss"][1]
    assert metrics[-1]["train_loss"] == pytest.approx(metrics[-1]["valid_loss"], rel=0.3)  # it has learned little yet
    lengths = [run.task.words(example) for example in held_out]
    if kind == "images":
        assert set(lengths) == {None}
    else:
        assert sum(map(len, by_length(lengths).values())) == len(held_out)


def test_a_label_that_was_not_in_training_cannot_be_right(tmp_path: Path) -> None:
    run = made("classification", tmp_path)
    judged = run.judge([*run.examples("test"), run.task.Example(("the plum",), "unheard of")])
    assert judged.values[-1] == 0
    assert judged.values[:-1] == run.judge(run.examples("test")).values


def test_translations_are_judged_by_bleu(trained: Translator) -> None:
    held_out = trained.examples("test")
    judged = trained.judge(held_out)
    assert judged.outputs == trained.evaluate(held_out).outputs
    (first, second), signature = estimates([judged, judged])
    assert first.value == second.value == judged.value(range(len(held_out)))
    assert second.p == 1
    assert signature.startswith("nrefs:1|bs:1000")


def test_every_run_can_be_judged_or_says_why_not(trained: Translator) -> None:
    plain = Run(trained.recipe, trained.model, trained.assets)
    with pytest.raises(InputError, match="runs for translation cannot be compared: the task does not say how to score"):
        plain.judge([])
    assert [kind for kind, task in TASKS.items() if task.Run.judge is Run.judge] == []


def test_groups_of_length_hold_all_examples_once_in_order() -> None:
    found = by_length([1 + number % 30 for number in range(300)])
    assert sorted(row for rows in found.values() for row in rows) == list(range(300))
    edges = [int(name.split()[0]) for name in found]
    assert edges == sorted(edges)
    assert len(found) == 5
    assert list(by_length([2, 2])) == ["2"]
    assert by_length([]) == {}
