"""Points: every model has names for its places, and a wrong one is answered with the right one."""

import copy

import pytest
import torch

import glassformer as gf
from glassformer.errors import InputError
from glassformer.looking.points import find, find_all
from glassformer.parts import MultiHeadAttention
from glassformer.parts.observing import Observable

from .families import FAMILIES, translator

BLOCK = ["queries", "keys", "values", "scores", "weights", "heads", "output", "after"]


def test_points_are_listed_in_the_order_of_the_model() -> None:
    known = gf.points(translator())
    layer = [f"decoder.0.{part}.{name}" for part in ("self", "cross") for name in BLOCK]
    start = known.index("decoder.tokens")
    begin = ["decoder.tokens", "decoder.embedding", "decoder.positions", "decoder.0.before"]
    end = ["decoder.0.ff.hidden", "decoder.0.ff.output", "decoder.0.after", "decoder.1.self.queries"]
    assert known[start : start + 4 + len(layer) + 4] == [*begin, *layer, *end]
    assert known[-2:] == ["decoder.output", "logits"]
    assert len(set(known)) == len(known)


@pytest.mark.parametrize("name", FAMILIES)
def test_every_point_of_every_family_is_passed(name: str) -> None:
    case = FAMILIES[name]
    model = case.model()
    with gf.record(model) as trace:
        model(*case.inputs)
    assert trace.names == gf.points(model)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_axes_of_every_point_are_what_passes(name: str) -> None:
    case = FAMILIES[name]
    model = case.model()
    with gf.record(model) as trace:
        model(*case.inputs)
    for point in trace:
        axes = trace.kept.axes_of(point)
        assert len(axes) == trace[point].dim()
        for (axis, length), found in zip(axes.items(), trace[point].shape, strict=True):
            assert length is None or length == found, (point, axis)


def test_second_names() -> None:
    known = gf.points(translator())
    assert find("decoder.1.cross", known) == "decoder.1.cross.weights"
    assert find("decoder.1.before", known) == "decoder.0.after"
    assert find("encoder.1.ff.after", known) == "encoder.1.after"
    assert find("encoder.0.before", known) == "encoder.0.before"


def test_patterns() -> None:
    known = gf.points(translator())
    assert find_all("decoder.*.cross", known) == ["decoder.0.cross.weights", "decoder.1.cross.weights"]
    assert len(find_all("weights", known)) == 6
    assert find_all(["logits", "encoder.tokens"], known) == ["encoder.tokens", "logits"]


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("decoder.1.cros", "did you mean decoder.1.cross.keys or"),
        ("encoder.7.self.weights", "did you mean encoder.1.self.weights or"),
        ("nothing of the kind", "there are encoder.tokens, encoder.embedding"),
    ],
)
def test_an_unknown_point_is_answered_with_the_nearest(name: str, answer: str) -> None:
    with pytest.raises(InputError, match=f'^there is no point "{name}": {answer}'), gf.record(translator(), keep=name):
        pass


def test_only_models_and_runs_can_be_looked_into() -> None:
    with pytest.raises(InputError, match=r"^a model or a run is expected to look into, not a str$"):
        gf.points("model")


def test_parts_have_names_of_their_own() -> None:
    assert gf.points(MultiHeadAttention(8, 2))[0] == "attention.queries"
    assert gf.points(translator().decoder)[0] == "decoder.tokens"
    assert gf.points(torch.nn.ModuleList([MultiHeadAttention(8, 2)]))[0] == "0.queries"


def test_a_copy_is_observed_by_nobody() -> None:
    model = translator()
    with gf.record(model):
        other = copy.deepcopy(model)
        assert all(part.observe is not None for part in model.modules() if isinstance(part, Observable))
    assert all(
        part.observe is None for each in (model, other) for part in each.modules() if isinstance(part, Observable)
    )
