"""Every number of every family can be written out, and its terms add up to what was recorded."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import glassformer as gf
from glassformer.errors import InputError
from glassformer.looking.sums import PROBABILITIES, Sum, sum_of
from glassformer.looking.sums.steps import FUNCTIONS, Step
from glassformer.looking.trace import Trace
from glassformer.parts import cosine_similarity
from glassformer.parts.values import NumberHead

from .families import FAMILIES

READ_AS_THEY_ARE = ("tokens", "patches", "values")


def recorded(name: str) -> tuple[Any, Trace]:
    case = FAMILIES[name]
    model = case.model()
    with gf.record(model) as trace, torch.inference_mode():
        model(*case.inputs)
    return model, trace


def close(one: float, other: float, size: float = 1.0) -> bool:
    return math.isclose(one, other, rel_tol=2e-5, abs_tol=2e-5 * max(size, 1.0))


def check_step(step: Step) -> None:
    """A step is what it says: its function of the sum of its products."""
    total = math.fsum(math.prod(term.factors) for term in step.terms)
    if step.function:
        total = float(FUNCTIONS[step.function](torch.tensor(total, dtype=torch.float64)))
    assert close(total, step.value), step.name


def check(found: Sum) -> None:
    size = max((abs(term.value) for step in found.steps for term in step.terms), default=1.0)
    assert close(found.steps[-1].value, found.value, size), f"{found.point}: {found.gap}"
    for step in found.steps:
        check_step(step)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_terms_add_up_to_what_was_recorded_at_every_point(name: str) -> None:
    model, trace = recorded(name)
    points = [point for point in trace.names if point.rpartition(".")[2] not in READ_AS_THEY_ARE]
    for point in points:
        x, axes = trace[point], trace.kept.axes_of(point)
        count = x.shape[-2] if "token" in axes or "key" in axes else 1
        head = x.shape[1] - 1 if "head" in axes else None
        for token, at in {(0, 0), (count - 1, x.shape[-1] - 1), (count // 2, x.shape[-1] // 2)}:
            check(sum_of(model, trace, point, token, at, head))
    reads = [point.replace(".output", ".input") for point in points if point.endswith(("self.output", "ff.output"))]
    for point in reads:
        if hasattr(model, "encoder") and not hasattr(model.encoder, "blocks"):
            continue
        check(sum_of(model, trace, point, 1, 3))
    if isinstance(getattr(model, "head", None), NumberHead):
        with pytest.raises(InputError, match=r"^this model answers with numbers, which have no probabilities$"):
            sum_of(model, trace, PROBABILITIES, 0, 1)
    elif "logits" in trace.names:
        check(sum_of(model, trace, PROBABILITIES, 0, 1))


def test_values_are_standardised_missing_ones_are_the_mean_and_numbers_have_the_units_of_the_data() -> None:
    case = FAMILIES["series_encoder"]
    model, values = case.model(), case.inputs[0].clone()
    values[0, 1, 2] = math.nan
    for part in (model.encoder.embedding, model.head):
        part.mean.copy_(torch.tensor([5.0, -3.0, 0.5]))
        part.deviation.copy_(torch.tensor([2.0, 0.1, 4.0]))
    with gf.record(model) as trace, torch.inference_mode():
        model(values)
    for token, at in ((0, 0), (1, 3), (4, 15)):
        check(sum_of(model, trace, "encoder.embedding", token, at))
    missing = sum_of(model, trace, "encoder.embedding", 1, 0).steps[-1].terms[-2]
    assert (missing.label, missing.factors[0]) == ("missing: column 2", 1.0)
    for at in range(3):
        check(sum_of(model, trace, "logits", 0, at))


def test_rotated_queries_and_biased_scores_show_what_is_really_multiplied() -> None:
    model, trace = recorded("llama")
    turned = sum_of(model, trace, "decoder.1.self.queries", token=3, at=1, head=0)
    assert [step.name for step in turned.steps][-1] == "turned to position 3"
    assert len(turned.steps[-1].terms) == 2  # a pair of numbers is turned together
    model, trace = recorded("t5")
    score = sum_of(model, trace, "encoder.0.self.scores", token=1, at=4, head=2)
    names = {term.label: term.value for term in score.steps[-1].terms}
    attention = model.encoder.blocks[0].attention.part
    ahead = attention.positions.bucket(torch.tensor(3))
    assert names["bias"] == pytest.approx(float(attention.positions.weight.detach()[ahead, 2]), abs=1e-7)
    assert names["q · k"] == pytest.approx(score.steps[0].value)  # T5 divides by nothing


def test_a_cosine_is_written_out_from_its_projection_on() -> None:
    model = gf.transformer(30, 8, 2, 1, 12, similarity=cosine_similarity).eval()
    tokens = torch.tensor([[5, 6, 7]])
    with gf.record(model) as trace, torch.inference_mode():
        model(tokens, tokens)
    unit = sum_of(model, trace, "encoder.0.self.queries", token=1, at=2, head=1)
    assert [step.name for step in unit.steps][1:] == ["|x|²", "unit length"]
    check(unit)
    score = sum_of(model, trace, "encoder.0.self.scores", token=1, at=2, head=1)
    assert [step.name for step in score.steps] == ["q · k"]  # of vectors of length 1: that is the cosine
    check(score)


def test_a_masked_key_has_no_term() -> None:
    model, trace = recorded("gpt2")
    total, share = sum_of(model, trace, "decoder.0.self.weights", token=1, at=3, head=0).steps
    assert [len(total.terms), share.value] == [2, 0.0]


def test_the_largest_terms_and_the_rest_are_the_sum() -> None:
    model, trace = recorded("transformer")
    (step,) = sum_of(model, trace, "decoder.0.ff.hidden", token=1, at=3).steps
    largest, rest = step.largest(3)
    assert len(largest) == 3
    assert math.fsum(term.value for term in largest) + rest == pytest.approx(step.total)
    assert min(abs(term.value) for term in largest) >= max(
        abs(term.value) for term in step.terms if term not in largest
    )


@pytest.mark.parametrize(
    ("point", "token", "at", "head", "said"),
    [
        ("decoder.0.cross.scores", 9, 0, 0, "there is no token 9"),
        ("decoder.0.cross.scores", 0, 99, 0, "there is no number 99"),
        ("decoder.0.cross.scores", 0, 0, 7, "there is no head 7"),
        ("decoder.0.after", 0, 0, 1, "there is no head 1"),
        ("decoder.0.cros.scores", 0, 0, 0, "did you mean decoder.0.cross.scores"),
        ("decoder.tokens", 0, 0, None, "read as it is"),
    ],
)
def test_what_is_not_there_is_refused_in_a_sentence(point: str, token: int, at: int, head: Any, said: str) -> None:
    model, trace = recorded("transformer")
    with pytest.raises(InputError, match=said):
        sum_of(model, trace, point, token, at, head)
