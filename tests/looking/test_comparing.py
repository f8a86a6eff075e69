"""Two runs on one text: what is the same, what is not, and from where on."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

import glassformer as gf
from every_task import EveryTask
from glassformer.errors import InputError
from glassformer.looking import comparing
from glassformer.looking.comparing import Comparison, compare, compare_items
from glassformer.tasks.translation import Translator

TEXT = "a b c d"


def changed(run: Translator, part: str) -> Translator:
    """The run with one of its parts changed."""
    model = copy.deepcopy(run.model)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.startswith(part):
                parameter += 0.1 * torch.randn_like(parameter)
    return run.with_model(model)


def test_a_run_does_not_differ_from_itself(trained: Translator) -> None:
    found = compare(trained, trained, TEXT)
    assert found.diverges is None
    assert found.outputs == (TEXT, TEXT)
    assert found.tokens[0] == found.tokens[1]
    assert {pair.distance for pair in found.heads} == {0.0}
    assert all(pair.nearest == (pair.layer, pair.head) for pair in found.heads)
    assert found.notes == []
    for score in found.scores:
        assert score.first == score.second
    own = trained.translate([TEXT], beam=1)[0]
    assert found.scores[0].first == pytest.approx(own.log_probability, abs=1e-4)


@pytest.mark.parametrize(
    ("part", "first"),
    [
        ("encoder.blocks.1.feed_forward", "encoder.1.after"),
        ("decoder.blocks.0.cross_attention", "decoder.0.cross.after"),
        ("encoder.blocks.0.attention", "encoder.0.self.after"),
    ],
)
def test_the_first_difference_is_where_a_part_was_changed(trained: Translator, part: str, first: str) -> None:
    found = compare(trained, changed(trained, part), TEXT)
    assert found.diverges is not None
    assert found.diverges.point == first
    before = [each.difference for each in found.streams][: [each.point for each in found.streams].index(first)]
    assert max(before, default=0.0) == 0.0


def test_heads_that_changed_places_are_found(trained: Translator) -> None:
    model = copy.deepcopy(trained.model)
    attention = model.decoder.blocks[1].cross_attention.part
    heads = 4
    with torch.no_grad():
        for linear in (attention.query, attention.key, attention.value):
            linear.weight.copy_(linear.weight.view(heads, -1, linear.weight.shape[1]).flip(0).flatten(0, 1))
            if linear.bias is not None:
                linear.bias.copy_(linear.bias.view(heads, -1).flip(0).flatten())
        weight = attention.output.weight
        weight.copy_(weight.view(len(weight), heads, -1).flip(1).flatten(1))
    found = compare(trained, trained.with_model(model), TEXT)
    moved = [pair for pair in found.heads if (pair.kind, pair.layer) == ("decoder.cross", 1)]
    assert [pair.nearest for pair in moved] == [(1, 3), (1, 2), (1, 1), (1, 0)]
    assert max(pair.nearest_distance for pair in moved) < 1e-4
    assert min(pair.distance or 0.0 for pair in moved) > 0.01
    assert all(each.difference < 1e-4 for each in found.streams)


def test_runs_of_other_shapes_are_compared_as_far_as_they_can_be(trained: Translator) -> None:
    found = compare(trained, gf.load("en-de"), "a b")
    assert any("different tokenizers" in note for note in found.notes)
    assert any("different widths" in note for note in found.notes)
    assert any(pair.kind == "encoder.self" for pair in found.heads)  # both read the words a and b
    assert found.scores[0].second is None
    assert found.streams == []


def test_heads_over_long_texts_are_compared_with_those_of_their_place(monkeypatch: pytest.MonkeyPatch) -> None:
    run: Any = gf.load("en-de")
    every = compare(run, run, "A man lives here.")
    monkeypatch.setattr(comparing, "MOST", 100)
    found = compare(run, run, "A man lives here.")
    assert len(found.heads) == len(every.heads)
    assert all(pair.nearest == (pair.layer, pair.head) for pair in found.heads)
    assert "decoder.cross attention is long, so each head is compared with the one of its place alone" in found.notes


def test_outputs_that_were_cut_are_compared_as_others_are() -> None:
    run: Any = gf.load("en-de")
    decode = run.recipe.decode.model_copy(update={"max_length": 2})
    run.recipe = run.recipe.model_copy(update={"decode": decode})
    found = compare(run, run, "A man lives here.")
    assert found.notes == []
    assert found.streams[-1].point == "decoder.output"
    assert [score.first for score in found.scores] == [score.second for score in found.scores]


def test_language_models_are_compared_in_what_they_write_after_the_text(every_task: EveryTask) -> None:
    runs, text = (every_task("gpt2"), every_task("llama")), "the red"
    found = compare(*runs, text)
    outputs = [each.text.removeprefix(text) for run in runs for each in run.generate([text], 20)]
    assert list(found.outputs) == outputs
    assert all(found.outputs)
    assert [each.what for each in found.scores] == ["the text"]


def test_a_text_that_leaves_no_room_is_compared_all_the_same(every_task: EveryTask) -> None:
    run = every_task("gpt2")
    found = compare(run, run, "the red hen says " * 7 + "the red hen")
    assert found.outputs == ("", "")
    assert found.notes == ["a prompt of 32 tokens leaves no room: the model reads 32 in all"]
    assert found.streams


@pytest.mark.parametrize(
    ("name", "scored"), [("forecasting", []), ("tagging", []), ("images", ["the likeliest label"])]
)
def test_what_is_scored_is_named_and_numbers_are_not(every_task: EveryTask, name: str, scored: list[str]) -> None:
    run = every_task(name)
    item = run.from_page(run.suggestions()[0])
    assert [each.what for each in compare_items(run, run, (item, item), "").scores] == scored


def test_the_output_of_one_is_not_beside_the_text_of_the_other(every_task: EveryTask) -> None:
    writes, goes_on = every_task("copy"), every_task("gpt2")
    assert [each.what for each in compare(writes, goes_on, "a b").scores] == ["the first output"]
    (score,) = compare(goes_on, writes, "a b").scores
    assert (score.what, score.second) == ("the text", None)


def test_a_table_holds_it_all(trained: Translator) -> None:
    found = compare(trained, changed(trained, "decoder.blocks.1"), TEXT)
    rows = list(found.rows())
    assert {len(row) for row in rows} == {9}
    assert [row[0] for row in rows].count("head") == len(found.heads) == 3 * 2 * 4
    bars = found.figure().axes[0]
    assert [each.get_text() for each in bars.get_yticklabels()] == [each.point for each in found.streams]


def test_nothing_to_draw_is_a_sentence() -> None:
    with pytest.raises(InputError, match="there is nothing to draw: no reason"):
        Comparison("a", ("", ""), ([], []), [], [], [], ["no reason"]).figure()


def test_an_empty_text_is_refused(trained: Any) -> None:
    with pytest.raises(InputError, match="there is nothing to look at in ''"):
        compare(trained, trained, "")
