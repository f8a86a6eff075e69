"""The residual stream: the lens ends with the logits, and what the parts add sums to them.

L layers, T tokens, V vocabulary
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import glassformer as gf
from glassformer.errors import InputError
from looking.families import FAMILIES, same

from .making import made

analyses = gf.analyses
LINEAR = [
    *("transformer", "transformer-post", "transformer-alibi", "t5", "bart", "marian"),
    *("gpt2", "llama", "vit", "vit-batch", "captioner", "roberta"),
]


def recorded(name: str, **options: Any) -> tuple[Any, Any]:
    model = FAMILIES[name].model()
    with gf.record(model, **options) as trace, torch.inference_mode():
        model(*FAMILIES[name].inputs)
    return model, trace


@pytest.mark.parametrize("name", [*LINEAR, "bert", "bert-classes"])
def test_the_last_row_of_the_lens_is_what_the_model_says(name: str) -> None:
    model, trace = recorded(name)
    for sentence in (0, 1):
        found = analyses.logit_lens(model, trace, sentence)
        said = trace["logits"][sentence]
        same(found.logits[-1], said[None] if said.dim() == 1 else said)
        assert len(found.points) == len(found.logits) == 3
        assert len(found.tokens) == found.logits.shape[1]
        assert torch.equal(found.top()[-1, :, 0], (said if said.dim() == 2 else said[None]).argmax(-1))


def test_the_lens_after_the_first_layer_is_head_and_norm() -> None:
    model, trace = recorded("gpt2")
    found = analyses.logit_lens(model, trace)
    same(found.logits[1], model.head(model.decoder.norm(trace["decoder.0.after"][0].clone())).detach())
    same(found.probabilities.sum(dim=-1), torch.ones(3, 5))
    assert found.texts()[0][0] == str(int(found.logits[0, 0].argmax()))
    best = int(found.logits[2, 1].argmax())
    assert int(found.rank(best)[2, 1]) == 0


def test_additions_by_hand() -> None:
    trace = made(
        {
            "decoder.0.before": [[3.0, 4.0]],
            "decoder.0.self.output": [[0.0, -10.0]],
            "decoder.0.self.after": [[3.0, -6.0]],
            "decoder.0.ff.output": [[6.0, -12.0]],
            "decoder.0.after": [[9.0, -18.0]],
        },
        {"decoder": ["a"]},
    )
    found = analyses.additions(trace)
    assert found.norm.rows == ["decoder.0.self.output", "decoder.0.ff.output"]
    assert found.norm.columns == ["a"]
    assert found.norm.values.flatten().tolist() == pytest.approx([10, 180**0.5])
    assert found.ratio.values.flatten().tolist() == pytest.approx([2, 2])
    assert found.cosine.values.flatten().tolist() == pytest.approx([-0.8, 1])


@pytest.mark.parametrize("name", ["transformer", "t5", "bart"])
def test_what_is_added_is_added_to_the_stream_before_it(name: str) -> None:
    _, trace = recorded(name)
    found = analyses.additions(trace, "decoder", 1)
    parts = [f"decoder.{layer}.{part}.output" for layer in (0, 1) for part in ("self", "cross", "ff")]
    assert found.norm.rows == parts
    before = trace["decoder.1.cross.after"][1]
    same(found.ratio.values[5], trace["decoder.1.ff.output"][1].norm(dim=-1) / before.norm(dim=-1))


@pytest.mark.parametrize("heads", [False, True])
@pytest.mark.parametrize("name", LINEAR)
def test_the_parts_sum_to_the_logit(name: str, heads: bool) -> None:
    model, trace = recorded(name)
    for sentence, position in ((0, -1), (1, 1)):
        for token, against in ((None, None), (1, 0)):
            found = analyses.logit_attribution(model, trace, token, position, against, heads, sentence)
            logits = trace["logits"][sentence]
            logits = logits if logits.dim() == 1 else logits[position]
            wanted = logits.max() if token is None else logits[1] - logits[0]
            assert found.logit == pytest.approx(float(wanted))
            assert float(found.values.sum()) == pytest.approx(float(wanted), abs=1e-4)
            assert len(found.parts) == len(set(found.parts)) == len(found.values)


def test_the_names_of_parts() -> None:
    model, trace = recorded("transformer")
    found = analyses.logit_attribution(model, trace, token=3)
    blocks = [f"decoder.{layer}.{part}" for layer in (0, 1) for part in ("self", "cross", "ff")]
    assert found.parts == ["decoder.embedding", "decoder.positions", *blocks, "biases"]
    apart = analyses.logit_attribution(model, trace, token=3, heads=True)
    crossed = {part: float(x) for part, x in zip(apart.parts, apart.values, strict=True) if ".0.cross." in part}
    assert list(crossed) == [*(f"decoder.0.cross.{head}" for head in range(4)), "decoder.0.cross.bias"]
    assert sum(crossed.values()) == pytest.approx(float(found.values[found.parts.index("decoder.0.cross")]), abs=1e-4)


def test_a_contribution_by_hand() -> None:
    """Pre-norm: a part's vector, centred, over the deviation of the stream, times weight and the row of the head."""
    model, trace = recorded("gpt2")
    norm, token = model.decoder.norm, 5
    stream, part = trace["decoder.1.after"][0, -1], trace["decoder.0.ff.output"][0, -1]
    scaled = (part - part.mean()) / (stream.var(unbiased=False) + norm.eps).sqrt() * norm.weight
    found = analyses.logit_attribution(model, trace, token)
    expected = float((scaled @ model.head.weight[token]).detach())
    assert float(found.values[found.parts.index("decoder.0.ff")]) == pytest.approx(expected, abs=1e-5)


@settings(max_examples=10)
@given(st.integers(0, 22), st.integers(0, 3), st.integers(0, 1))
def test_the_sum_holds_for_any_token(token: int, position: int, sentence: int) -> None:
    model, trace = recorded("transformer-post")
    found = analyses.logit_attribution(model, trace, token, position, sentence=sentence)
    assert float(found.values.sum()) == pytest.approx(float(trace["logits"][sentence, position, token]), abs=1e-4)


@pytest.mark.parametrize(
    ("name", "options", "call", "sentence"),
    [
        ("gpt2", {"keep": "weights"}, analyses.logit_lens, "the logit lens needs decoder.0.before, which this trace d"),
        ("lstm", {}, analyses.logit_lens, "the logit lens needs a residual stream, which this model does not have"),
        ("lstm", {}, analyses.logit_attribution, "logit attribution needs a residual stream, which this model does"),
        (
            "series_encoder",
            {},
            analyses.logit_lens,
            "the logit lens needs scores of words or labels, and this model an",
        ),
        ("series_encoder", {}, analyses.logit_attribution, "logit attribution needs scores of words or labels, and th"),
        ("gpt2", {"keep": "after"}, analyses.logit_attribution, "logit attribution needs logits, which this trace do"),
        (
            "gpt2",
            {"keep": ["logits", "embedding"]},
            analyses.logit_attribution,
            "logit attribution needs decoder.positions, which this trace does not hold: record with keep=",
        ),
        (
            "gpt2",
            {},
            lambda m, t: analyses.logit_attribution(m, t, position=9),
            "there is no position 9: the text has 5",
        ),
        ("gpt2", {}, lambda m, t: analyses.logit_attribution(m, t, 99), "there is no token 99: the logits are of 0 to"),
        ("gpt2", {}, lambda m, t: analyses.logit_lens(m, t).top(99), "there are 23 tokens to choose from, not 99"),
        ("gpt2", {}, lambda m, t: analyses.additions(t, "encoder"), "additions needs what the parts of encoder give, "),
        ("lstm", {}, lambda m, t: analyses.additions(t), "additions needs what the parts of decoder give, which this "),
        (
            "gpt2",
            {"heads": 1},
            lambda m, t: analyses.logit_attribution(m, t, heads=True),
            "logit attribution needs all heads of decoder.0.self.heads: record without heads=",
        ),
        (
            "bert-classes",
            {},
            analyses.logit_attribution,
            "the parts do not sum to the logit: between stream and logit ",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(name: str, options: Any, call: Any, sentence: str) -> None:
    model, trace = recorded(name, **options)
    with pytest.raises(InputError, match=f"^{sentence}"):
        call(model, trace)


def test_a_trace_of_other_weights_is_refused() -> None:
    _, trace = recorded("gpt2")
    with pytest.raises(InputError, match=r"^the parts do not sum to the logit: .* or the trace is of other weights$"):
        analyses.logit_attribution(FAMILIES["gpt2"].model(seed=1), trace)
