"""Forecasting: windows, splits by time, losses, units, and a run that is used."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import glassformer as gf
from glassformer.cli.looking import Asked, show_run
from glassformer.data.examples import Series, from_line, to_line
from glassformer.errors import InputError, RecipeError
from glassformer.looking.comparing import compare
from glassformer.recipe import make_recipe
from glassformer.runs import prepare_corpus
from glassformer.tasks.series.windows import Criterion, Frame, cut, standard, table
from waves import forecasting, merged, written

FRAME = Frame(window=4, horizon=2, ahead=1, read=(0,), predicted=(0,))


def series(values: list[float | None], name: str = "s") -> Series:
    return Series(name, ("x",), tuple((value,) for value in values))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run with quantiles of two columns. It is everybody's: look, do not touch."""
    folder = tmp_path_factory.mktemp("forecasting")
    return gf.train(forecasting(folder, task={"criterion": "quantile"}, train={"steps": 150}), folder / "run")


def test_a_series_is_one_line_of_json() -> None:
    one = series([1.0, None, 3.5])._replace(times=(0.0, 1.0, 2.0), labels=("a", None, "b"), dated=True)
    assert from_line(Series, to_line(one)) == one


def test_windows_are_cut_where_something_is_known() -> None:
    found = list(cut(series([1, 2, 3, 4, 5, 6, 7, None, None, None]), FRAME, 2))
    assert [each.values[0][0] for each in found] == [1, 3]  # after 5, 6, 7, None nothing is known


def test_splits_follow_each_other_in_time(tmp_path: Path) -> None:
    recipe = make_recipe(forecasting(tmp_path, data={"valid": 0.1, "test": 0.2}))
    corpus = prepare_corpus(recipe)
    frame = recipe.task.frame(recipe.source.columns)
    trained = corpus.splits["train"].source(0).view(np.float32).reshape(-1, 2)
    assert len(trained) == 168  # of 240
    ends = []
    for split, first, last in (("valid", 168, 192), ("test", 192, 240)):
        windows = corpus.held_out(split)
        predicted = [time for each in windows for time in each.times[frame.first :]]
        assert predicted == [float(step) for step in range(first, last)]  # each once, none of the split before
        ends.append(windows[0].times[frame.window - 1])
    assert ends == [167.0, 191.0]  # a forecast reads up to the step before


def test_training_windows_end_before_validation_begins(tmp_path: Path) -> None:
    recipe = make_recipe(forecasting(tmp_path))
    corpus = prepare_corpus(recipe)
    windows = recipe.task.collator(recipe, corpus, torch.nn.Identity()).pairs
    assert len(windows.starts) == 168 - 20 + 1
    last = windows.values(np.array([len(windows.starts) - 1]))  # (1, 20, 2)
    assert last[0, -1, 0] == pytest.approx(float(corpus.splits["train"].source(0).view(np.float32)[-2]))


@pytest.mark.parametrize(("kind", "wanted"), [("squared", 4.0), ("absolute", 2.0)])
def test_losses_are_those_of_the_formulas(kind: str, wanted: float) -> None:
    assert float(Criterion(kind)(torch.tensor([-2.0]))) == wanted


def test_the_loss_of_quantiles_is_least_at_the_quantiles() -> None:
    values = torch.arange(1.0, 101.0)  # of which 90 % are at most 90
    losses = [float(Criterion("quantile", (0.9,))((values - guess)[:, None]).mean()) for guess in range(80, 100)]
    assert 80 + losses.index(min(losses)) in (90, 91)


def test_units_of_windows_do_not_depend_on_level_and_scale(run: Any) -> None:
    history = run.history(run.examples("test")[:3])
    moved = run.predictions(1000 + 50 * history)
    assert moved == pytest.approx(1000 + 50 * run.predictions(history), rel=1e-4)


def test_a_window_that_never_changes_has_a_spread() -> None:
    level, spread = standard(np.array([[[5.0], [5.0]], [[0.0], [0.0]], [[math.nan], [math.nan]]]))
    assert level[:, 0, 0].tolist() == [5.0, 0.0, 0.0]
    assert (spread > 0).all()


def test_it_beats_the_naive_forecasts(run: Any) -> None:
    found = run.evaluate(run.examples("test"))
    assert found.scores.mae < found.baselines["naive"].mae
    assert found.scores.mase < 3 * found.baselines["seasonal naive"].mase
    facts = found.facts()
    assert facts["windows"] == 12
    assert facts["columns"].keys() == {"heat", "load"}
    assert 0 <= facts["interval"]["coverage"] <= 1
    assert facts["interval"]["expected"] == pytest.approx(0.8)
    assert found.loss == pytest.approx(run.measure(run.examples("test"), 5)["loss"])


def test_validation_and_training_measure_the_same_loss(run: Any) -> None:
    recipe, examples = run.recipe, run.examples("valid")
    corpus = prepare_corpus(recipe)
    held_out = type(corpus)(**{**vars(corpus), "splits": {**corpus.splits, "train": corpus.splits["valid"]}})
    task = recipe.task.model_copy(update={"stride": recipe.task.horizon})
    collator = task.collator(recipe, held_out, run.model)
    batch = collator(np.arange(len(collator.pairs.starts)), np.random.default_rng(0))
    learner: Any = type("Learner", (), {"hidden": run.model.hidden, "head": run.model.head})
    with torch.inference_mode():
        loss = float(task.loss(learner, batch)) / batch.targets
    assert loss == pytest.approx(run.evaluate(examples).loss, rel=1e-2)  # which has its quantiles sorted


def test_forecasts_of_files_series_and_rows_are_the_same(run: Any, tmp_path: Path) -> None:
    values = table(run.examples("test")[0])[:16].tolist()
    file = written(
        tmp_path / "new.csv", ("load", "other", "hour", "heat"), [(b, "?", t, a) for t, (a, b) in enumerate(values)]
    )
    of_file, of_rows = run.forecast([file, values])
    assert of_file.values == pytest.approx(np.array(of_rows.values))
    assert of_file.times == ["16", "17", "18", "19"]
    assert of_rows.times == ["+1", "+2", "+3", "+4"]
    quantiles = [f"{column} {level}" for column in ("heat", "load") for level in ("0.1", "0.5", "0.9")]
    assert of_file.header == ["time", "heat", "load", *quantiles]
    low, middle, high = (np.array(of_file.quantiles[level]) for level in ("0.1", "0.5", "0.9"))
    assert (low <= middle).all()
    assert (middle <= high).all()
    assert run.look(values)["encoder.values"].shape == (1, 16, 2)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ([[1.0, 2.0]] * 3, "has 3 steps: this run reads 16"),
        ([[1.0]] * 20, r"has 2 columns \(heat, load\)"),
        ([[math.nan, math.nan]] * 16, "none of the last 16 steps has a value"),
        ([[math.inf, 1.0]] * 16, "infinite"),
        ("no-such.csv", "no-such.csv"),
    ],
)
def test_what_cannot_be_forecast_is_refused_in_a_sentence(run: Any, given: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        run.forecast([given])


def test_missing_values_are_read_as_missing(run: Any) -> None:
    values = table(run.examples("test")[0])[:16]
    gap = values.copy()
    gap[3, 0] = math.nan
    assert run.predictions(gap[None]) != pytest.approx(run.predictions(values[None]))
    assert np.isfinite(run.predictions(gap[None])).all()


def test_a_look_names_steps_by_their_values(run: Any) -> None:
    trace = run.look(run.examples("test")[0])
    tokens = trace.tokens("encoder")[0]
    assert tokens[-1].startswith("t ")
    assert tokens[0].startswith("t-15 ")
    assert trace["encoder.0.self"].shape == (1, 2, 16, 16)
    assert trace.axes("logits")["label"][:2] == ["heat +1 0.1", "heat +1 0.5"]


def test_a_forecast_is_no_score_to_explain(run: Any, tmp_path: Path) -> None:
    """Neither a lens nor the words for it, which are of scores: a sentence, also from the command."""
    trace = run.look(run.examples("test")[0])
    for figure in (trace.plot.attribution, trace.plot.logit_lens):
        with pytest.raises(InputError, match=r"this model answers with numbers$"):
            figure()
    file = written(tmp_path / "new.csv", ("hour", "heat", "load"), [(at, 1 + at % 3, at) for at in range(20)])
    with pytest.raises(InputError, match=r"has nothing to show of why: it has attention, .*positions, embeddings, ro"):
        show_run([run.path], str(file), Asked("why", *[None] * 9), {})
    assert compare(run, run, str(file)).scores == []  # nor a probability


def test_pictures_show_the_forecast_and_the_attention(run: Any) -> None:
    examples = run.examples("test")
    names = [each.name for each in run.pictures(examples, run.evaluate(examples))]
    assert names == ["forecast", "attention"]


@pytest.mark.parametrize("family", ["series_recurrent", "series_decoder"])
def test_other_families_learn_it_too(family: str, tmp_path: Path) -> None:
    model = {"family": family, "width": 16, "layers": 1, "dropout": 0.0}
    model |= {"heads": 2, "hidden": 32} if family != "series_recurrent" else {"cell": "gru"}
    asked = {**forecasting(tmp_path, train={"steps": 30, "validate_every": 30}), "model": model}
    made: Any = gf.train(asked, tmp_path / "run")
    found = made.evaluate(made.examples("test"))
    assert found.scores.mae < found.baselines["naive"].mae
    assert made.forecast([table(made.examples("test")[0])[:16]])[0].quantiles == {}
    assert gf.load(tmp_path / "run").look(made.examples("test")[0]).names


def test_numbers_of_the_same_time_are_told_from_other_columns(tmp_path: Path) -> None:
    same = {"ahead": 0, "horizon": 1, "predict": ["load"], "normalise": "training", "season": 1}
    made: Any = gf.train(forecasting(tmp_path, task=same, train={"steps": 150}), tmp_path / "run")
    found = made.evaluate(made.examples("test"))
    assert made.read_columns == ["heat"]
    assert found.scores.mae < 0.5 * found.baselines["training mean"].mae
    assert "mase" not in found.summary()
    again = gf.load(tmp_path / "run")  # the training data's mean and deviation come with the weights
    assert float(again.model.head.mean[0]) == pytest.approx(20, abs=3)
    assert again.forecast([[[10.0 + step] for step in range(16)]])[0].columns == ["load"]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"task": {"predict": ["laod"]}}, "names 'laod', which is not among source.columns: did you mean 'load'"),
        ({"task": {"predict": ["load", "load"]}}, "names 'load' twice"),
        ({"task": {"ahead": 0}}, "none is left to read"),
        ({"task": {"ahead": 0, "predict": ["load"]}}, 'set task.normalise = "training"'),
        ({"task": {"season": 16}}, "must be below task.window"),
        ({"task": {"quantiles": [0.5, 0.9]}}, "needs task.criterion"),
        ({"task": {"criterion": "quantile", "quantiles": [0.9, 0.5]}}, "expected rising numbers"),
        ({"task": {"criterion": "quantile", "quantiles": [0.1, 0.9]}}, "with 0.5 among them"),
        ({"task": {"horizon": 10_000}, "source": {"columns": [f"c{n}" for n in range(20)]}}, "more than 100,000"),
        ({"task": {"window": 300}}, "train.batch_tokens is 256"),
        ({"source": {"columns": ["heat", "heat"]}}, "names 'heat' twice"),
        ({"source": {"columns": []}}, "source.columns"),
    ],
)
def test_a_wrong_recipe_is_refused_in_a_sentence(changes: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=sentence.replace("(", r"\(")):
        make_recipe(merged(forecasting(tmp_path), changes))


def test_a_series_without_a_whole_window_is_counted(tmp_path: Path) -> None:
    asked = forecasting(tmp_path, task={"window": 200})
    asked["train"]["batch_tokens"] = 512
    with pytest.raises(gf.errors.DataError, match="without a whole window"):
        prepare_corpus(make_recipe(asked))
