"""What all experiments are made with: rows that can be selected, trials that can be repeated, charts."""

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from glassformer.experiments.batches import counting, repeating
from glassformer.experiments.charts import MARKER, bands, bars, lines, panels
from glassformer.experiments.finding import Rows, Spread, silent
from glassformer.experiments.small import language_model
from glassformer.experiments.trial import Trial
from glassformer.looking.style import BLUE, ORANGE
from glassformer.tasks.gathering import token_loss

ROWS = Rows([{"model": "a", "x": 1, "y": 2.0}, {"model": "b", "x": 1, "y": 3.0}, {"model": "a", "x": 2}])


def test_rows_are_selected_by_values() -> None:
    assert ROWS.where(model="a", x=1) == [ROWS[0]]
    assert ROWS.where(y=None) == [ROWS[2]]  # a column that a row lacks
    assert ROWS.column("x") == [1, 1, 2]
    assert ROWS.where(x=1).values("y", by="model") == {"a": 2.0, "b": 3.0}
    assert ROWS.values("x", by=("model", "x")) == {("a", 1): 1, ("b", 1): 1, ("a", 2): 2}


def test_progress_counts_what_is_done() -> None:
    told: list[tuple[str, int, int | None]] = []
    trial = Trial(0, lambda *words: told.append(words))
    assert [(item, len(told)) for item in trial.each("counting", "abc")] == [("a", 0), ("b", 1), ("c", 2)]
    assert told == [("counting", 1, 3), ("counting", 2, 3), ("counting", 3, 3)]


def test_a_trial_repeats_its_models_its_batches_and_its_training() -> None:
    def train(seed: int) -> list[tuple[int, float]]:
        trial = Trial(seed, silent)
        model = trial.begin(language_model, "RNN", 11, 8)
        return trial.learn("", model, counting, token_loss, steps=4, rate=1e-2, every=2)

    assert [step for step, _ in train(1)] == [2, 4]
    assert train(1) == train(1) != train(2)
    trial = Trial(1, silent)
    assert torch.equal(trial.new(counting, count=3).text, trial.new(counting, count=3).text)


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM", "Transformer"])
def test_language_models_of_all_kinds_score_the_next_token(kind: str) -> None:
    model: nn.Module = language_model(kind, 5, 8)
    assert model(torch.tensor([[1, 2, 3]])).shape == (1, 3, 5)


@pytest.mark.parametrize("back", [1, 3])
def test_a_token_of_before_is_asked_for_where_there_is_one(back: int) -> None:
    batch = partial(repeating, vocabulary=9, length=5, back=back, count=2)(np.random.default_rng(0))
    assert batch.label_mask.sum(dim=1).tolist() == [5 - back] * 2
    assert torch.equal(batch.labels[:, back:], batch.text[:, :-back])


def test_lines_have_the_marker_of_their_colour_and_only_rows_make_lines() -> None:
    _, axes = panels(1, 4, 3)
    lines(axes, ROWS.where(x=1), "x", "y", "model", {"a": BLUE, "b": ORANGE, "c": BLUE})
    assert [(line.get_label(), line.get_color()) for line in axes.lines] == [("a", BLUE), ("b", ORANGE)]
    assert [line.get_marker() for line in axes.lines] == [MARKER[BLUE], MARKER[ORANGE]]


def test_bars_stand_beside_each_other_in_their_groups() -> None:
    _, (standing, lying) = panels(2, 4, 3)
    values, colours = {"a": [1, 2], "b": [3, 4]}, {"a": BLUE, "b": ORANGE}
    bars(standing, ["one", "two"], values, colours, form="{:.0f}")
    bars(lying, ["one", "two"], values, colours, lying=True)
    assert [bar.get_height() for bar in standing.patches] == [bar.get_width() for bar in lying.patches] == [1, 2, 3, 4]
    centres = [bar.get_x() + bar.get_width() / 2 for bar in standing.patches]
    assert centres == pytest.approx([-0.2, 0.8, 0.2, 1.2])
    assert [text.get_text() for text in standing.texts] == ["1", "2", "3", "4"]
    _, axes = panels(1, 4, 3)
    bars(axes, ["one"], {"a": [-0.001], "b": [-0.3]}, colours, form="{:.2f}")
    assert [text.get_text() for text in axes.texts] == ["0.00", "-0.30"]
    assert [text.get_verticalalignment() for text in axes.texts] == ["bottom", "top"]


def test_bands_reach_from_the_lowest_to_the_highest_seed() -> None:
    rows = Rows({"model": "a", "x": x, "y": y, "seed": seed} for x in (1, 2) for seed, y in enumerate((1.0, 2.0, 6.0)))
    assert rows.spreads("y", by="x") == {1: Spread([1, 2, 6]), 2: Spread([1, 2, 6])}
    _, axes = panels(1, 4, 3)
    bands(axes, rows, "x", "y", "model", {"a": BLUE, "b": ORANGE}, scale=10)
    (line,) = axes.lines
    assert line.get_xydata().tolist() == [[1, 30], [2, 30]]
    (band,) = axes.collections
    heights = {*band.get_paths()[0].vertices[:, 1].tolist()}
    assert heights == {10, 60}


def test_bars_of_several_seeds_have_whiskers() -> None:
    _, axes = panels(1, 4, 3)
    bars(axes, ["one"], {"a": [Spread([1, 2, 6])]}, {"a": BLUE})
    (bar,) = axes.patches
    assert bar.get_height() == 3
    (whisker,) = axes.containers[0].lines[2]
    assert whisker.get_segments()[0][:, 1].tolist() == [1, 6]
