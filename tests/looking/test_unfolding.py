"""Every part of every family unfolds, to numbers that its trace holds."""

from __future__ import annotations

import pytest
import torch

from glassformer.errors import InputError
from glassformer.looking.stages import stages, strips
from glassformer.looking.sums import sum_of
from glassformer.looking.unfolding import unfold

from .families import FAMILIES
from .test_sums import check, recorded


@pytest.mark.parametrize("name", FAMILIES)
def test_every_part_unfolds_to_numbers_of_the_trace_that_can_be_written_out(name: str) -> None:
    model, trace = recorded(name)
    lanes = stages(model)
    assert [lane.stack for lane in lanes] == [each for each in ("encoder", "decoder") if hasattr(model, each)]
    for part in [part for lane in lanes for stage in lane.stages for part in stage.parts]:
        found = unfold(model, trace, part.name, token=0, head=part.heads - 1 if part.heads else 0)
        assert found.tables
        for key, table in found.tables.items():
            assert len(table.rows) == len(table.values) or table.places
            if not table.point:
                continue
            at = 2 if table.places is None else table.places[1]
            column = 2 if table.places is None else 1
            head = 0 if key == "joined" else table.head
            row = 0 if key == "joined" else len(table.values) - 1
            token = table.first + (0 if key == "joined" else row)
            working = sum_of(model, trace, table.point, token, at, head)
            torch.testing.assert_close(working.value, float(table.values[row, column]), atol=1e-5, rtol=1e-5)
            check(working)


@pytest.mark.parametrize("name", FAMILIES)
def test_stages_name_points_in_the_order_in_which_they_are_passed(name: str) -> None:
    model, trace = recorded(name)
    points = [stage.point for lane in stages(model) for stage in lane.stages]
    assert points == sorted(points, key=trace.names.index)
    assert (points[-1] == "logits") == ("logits" in trace)


@pytest.mark.parametrize(
    ("name", "begin", "end", "said"),
    [
        ("gpt2", "embedding + position", "next token", "scores, then softmax"),
        ("vit", "patches + position", "answer", "scores, then softmax"),
        ("captioner-film", "patches + position", "next token", "scores, then softmax"),
        ("series_decoder", "embedding + position", "answer", "numbers"),
    ],
)
def test_both_ends_are_called_what_they_are(name: str, begin: str, end: str, said: str) -> None:
    first, *_, last = [stage for lane in stages(FAMILIES[name].model()) for stage in lane.stages]
    assert (first.title, last.title, last.parts[0].title) == (begin, end, said)


def test_numbers_have_no_probabilities() -> None:
    model, trace = recorded("series_encoder")
    assert [*unfold(model, trace, "logits").tables] == ["input", "numbers"]


def test_weights_sum_to_one_over_the_allowed_keys() -> None:
    model, trace = recorded("gpt2")
    found = unfold(model, trace, "decoder.1.self", token=2, head=1)
    allowed, weights = found.facts["allowed"], found.tables["weights"].values
    assert allowed.tolist() == torch.ones(5, 5).tril().bool().tolist()
    assert float(weights[~allowed].abs().sum()) == 0
    torch.testing.assert_close(weights.sum(dim=1), torch.ones(5, dtype=weights.dtype))


def test_strips_keep_the_largest_of_each_bin() -> None:
    x = torch.tensor([[1.0, -3.0, 2.0, 0.5, 0.0, -0.25]])
    assert strips(x, 3).tolist() == [[-3.0, 2.0, -0.25]]
    assert strips(x, 99) is x
    assert strips(torch.randn(4, 7), 3).shape == (4, 3)


@pytest.mark.parametrize(
    ("part", "token", "head", "said"),
    [
        ("decoder.0.crss", 0, 0, "there is no part"),
        ("decoder.0.cross", 0, 9, "there is no head 9"),
        ("decoder.0.ff", 99, 0, "there is no token 99"),
    ],
)
def test_what_is_not_there_is_refused(part: str, token: int, head: int, said: str) -> None:
    model, trace = recorded("transformer")
    with pytest.raises(InputError, match=said):
        unfold(model, trace, part, token, head)
