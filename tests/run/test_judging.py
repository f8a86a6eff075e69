"""Judging: what each kind of run scores on each example adds up to what it says of all of them."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import glassformer as gf
import questions
import stories
from glassformer.errors import InputError
from glassformer.run import Run
from glassformer.run.judging import JUDGES, estimates, judge, stretches, value
from labels import examples, folder_of_bars, image_recipe, table, text_recipe

FEW: dict[str, Any] = {"steps": 2, "validate_every": 2}


def made(kind: str, folder: Path) -> Any:
    text = stories.stories(folder / "t.txt", 60)
    recipes: dict[str, Callable[[], dict[str, Any]]] = {
        "classification": lambda: text_recipe(table(folder / "t.tsv", examples(80)), train=FEW),
        "images": lambda: image_recipe(folder_of_bars(folder / "images", 20), train=FEW),
        "answering": lambda: questions.recipe(
            questions.written(folder / "q.json", questions.paragraphs(30)), train=FEW
        ),
        "tagging": lambda: {
            "task": {"kind": "tagging"},
            "source": {"kind": "grammar", "count": 80},
            "tokenizer": {"kind": "word", "vocabulary": 100},
            "model": {"width": 16, "layers": 1},
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
    "tagging": lambda found: 100 * found.scores.accuracy,
    "answering": lambda found: 100 * found.scores.f1,
    "language-modelling": lambda found: found.nats / math.log(2) / found.bytes,
}


@pytest.mark.parametrize("kind", [*TOTALS, "masked-language-modelling", "span-corruption"])
def test_each_kind_of_run_is_judged_example_by_example(kind: str, tmp_path: Path) -> None:
    run = made(kind, tmp_path)
    held_out, seen = run.pairs("test"), list[tuple[int, int]]()
    judged = judge(run, held_out, lambda done, of: seen.append((done, of)))
    assert len(judged.values) == len(judged.weights) == len(held_out)
    assert seen[-1][0] == seen[-1][1]
    (found,), signature = estimates([judged], [])
    assert found.low <= found.value <= found.high
    assert signature == ""
    whole = value(judged, [], range(len(held_out)))
    assert whole == pytest.approx(found.value)
    if kind in TOTALS:
        assert whole == pytest.approx(TOTALS[kind](run.evaluate(held_out)), rel=1e-4)
    else:  # other tokens are hidden of a text by itself than of texts together
        assert whole == pytest.approx(run.evaluate(held_out).loss, rel=0.2)
    assert sum(map(len, stretches(held_out).values())) == (0 if kind == "images" else len(held_out))


def test_a_label_that_was_not_in_training_cannot_be_right(tmp_path: Path) -> None:
    run = made("classification", tmp_path)
    judged = judge(run, [*run.pairs("test"), ("the plum", "unheard of")])
    assert judged.values[-1] == 0
    assert judged.values[:-1] == judge(run, run.pairs("test")).values


def test_translations_are_judged_by_bleu(trained: Run) -> None:
    held_out = trained.pairs("test")
    judged, references = judge(trained, held_out), [target for _, target in held_out]
    assert judged.outputs == trained.evaluate(held_out).outputs
    (first, second), signature = estimates([judged, judged], references)
    assert first.value == second.value == value(judged, references, range(len(held_out)))
    assert second.p == 1
    assert signature.startswith("nrefs:1|bs:1000")


def test_every_run_can_be_judged_or_says_why_not() -> None:
    class Other:
        class recipe:  # noqa: N801
            class task:  # noqa: N801
                kind = "dreaming"

    with pytest.raises(InputError, match="runs for dreaming cannot be compared"):
        judge(Other(), [])
    from glassformer.cli.finishing import REPORTS

    assert set(JUDGES) == set(REPORTS)


def test_stretches_of_length_hold_all_examples_once_in_order() -> None:
    some = [(" ".join(["w"] * (1 + number % 30)), "") for number in range(300)]
    found = stretches(some)
    assert sorted(row for rows in found.values() for row in rows) == list(range(300))
    edges = [int(name.split()[0]) for name in found]
    assert edges == sorted(edges)
    assert len(found) == 5
    assert list(stretches([("a b", ""), ("c d", "")])) == ["2"]
    assert stretches([]) == {}
