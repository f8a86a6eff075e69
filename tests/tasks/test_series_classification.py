"""Series that are told apart by their labels."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import glassformer as gf
from glassformer.errors import RecipeError
from glassformer.recipe import make_recipe
from glassformer.runs import prepare_corpus
from glassformer.tasks.series.windows import table
from waves import recognising


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run that tells quick waves from slow ones. It is everybody's: look, do not touch."""
    folder = tmp_path_factory.mktemp("recognising")
    return gf.train(recognising(folder, train={"steps": 120}), folder / "run")


def test_it_tells_them_apart(run: Any) -> None:
    examples = run.examples("test")
    found = run.evaluate(examples)
    assert found.scores.accuracy > 0.8
    assert found.facts()["windows"] == len(examples) == 6 * (32 // 8)
    assert run.judge(examples).value(range(len(examples))) == pytest.approx(100 * found.scores.accuracy)


def test_windows_lie_in_one_split_and_have_the_label_of_their_last_step(run: Any) -> None:
    recipe = run.recipe
    windows = recipe.task.collator(recipe, prepare_corpus(recipe), run.model).pairs
    steps = windows.starts[:, 1] - windows.starts[:, 0]
    assert (steps >= 0).all()
    assert {len(each.values) for each in run.examples("test")} == {8}
    assert all(run.label_of(each) == each.labels[-1] for each in run.examples("test"))


def test_it_is_used_by_file_and_by_rows(run: Any, tmp_path: Path) -> None:
    window = run.examples("test")[0]
    file = tmp_path / "one.csv"
    file.write_text("who,x\n" + "".join(f"me,{value[0]}\n" for value in window.values))
    of_file, of_rows = run.classify([str(file), table(window)[:, 0].tolist()])
    assert of_file.label == of_rows.label
    assert of_file.probability == pytest.approx(of_rows.probability)
    assert run.look(window).output == of_file.label


def test_the_level_matters_in_units_of_training(run: Any) -> None:
    values = table(run.examples("test")[0])
    assert run.answers(values[None]) != pytest.approx(run.answers(values[None] + 100))
    mean = float(run.model.encoder.embedding.mean)
    assert mean == pytest.approx(np.nanmean(np.concatenate([table(each) for each in run.examples("test")])), abs=2)


def test_labels_are_needed(tmp_path: Path) -> None:
    asked = recognising(tmp_path)
    del asked["source"]["label"]
    with pytest.raises(RecipeError, match=r"source\.label is missing"):
        make_recipe(asked)
