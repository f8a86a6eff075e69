"""Attribution: by hand where f is linear, and complete for every kind of model.

R outputs, N tokens, D width
"""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import glassformer as gf
from glassformer.errors import InputError
from looking.families import TARGET, same

from .making import Reader

analyses = gf.analyses
MODELS = [
    "transformer",
    "transformer-post",
    "t5",
    "gpt2",
    "bert",
    "bert-classes",
    "vit",
    "captioner",
    "lstm",
    "gru-next",
]
CLOSE = 0.02  # by how much a sum over tokens may miss f(x) - f(baseline) with 400 steps, as a part of the largest


@pytest.mark.parametrize("name", MODELS)
def test_integrated_gradients_are_complete(name: str) -> None:
    run = Reader(name)
    found = analyses.integrated_gradients(run, "", steps=400)
    moved = (found.outputs - found.baseline).abs().max()
    assert float(found.gap.abs().max()) < CLOSE * float(moved)
    assert found.values.shape == (len(found.rows), len(found.columns))
    logits = run.model(*run.forced("").inputs)[0].detach()
    logits = logits[None] if logits.dim() == 1 else logits
    explained = torch.stack([row[int(token)] for row, token in zip(logits, found.rows, strict=True)])
    same(found.outputs, explained)


def test_more_steps_miss_less() -> None:
    gaps = [float(analyses.integrated_gradients(Reader("gpt2"), "", steps=n).gap.abs().max()) for n in (2, 400)]
    assert gaps[1] < 0.1 * gaps[0]


class Sum(torch.nn.Module):
    """Logits that are sums of the embedding: [x₀ + x₁, 2 x₀]."""

    def __init__(self, inside: Any) -> None:
        super().__init__()
        self.inside = inside

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = x.sum(dim=1)
        return torch.stack((total[:, 0] + total[:, 1], 2 * total[:, 0]), dim=-1)


@pytest.mark.parametrize(
    ("method", "options"),
    [
        (analyses.input_x_gradient, {}),
        (analyses.integrated_gradients, {"baseline": torch.zeros(16)}),
        (analyses.occlusion, {"baseline": torch.zeros(16)}),
    ],
)
def test_of_a_linear_model_all_methods_are_exact(method: Any, options: dict[str, Any]) -> None:
    run = Reader("bert-classes")
    encoder = run.model.encoder
    encoder.blocks, encoder.norm, encoder.embedding.norm = (
        torch.nn.ModuleList(),
        torch.nn.Identity(),
        torch.nn.Identity(),
    )
    run.model.head = Sum(None)
    tokens = run.forced("").inputs[0]
    x = (encoder.embedding.weight[tokens[0]] + encoder.embedding.segments[0]).detach()
    found = method(run, "", token=0, **options)
    same(found.values[0], x[:, 0] + x[:, 1])
    same(found.gap, torch.zeros(1))
    same(method(run, "", token=1, **options).values[0], 2 * x[:, 0])
    same(method(run, "", token=0, against=1, **options).values[0], x[:, 1] - x[:, 0])  # why 0 and not 1


def test_input_times_gradient_is_that() -> None:
    run = Reader("gpt2")
    model, (tokens, keep) = run.model, run.forced("").inputs
    found = analyses.input_x_gradient(run, "", token=3, position=2)
    leaf = model.decoder.embedding.weight[tokens].detach().requires_grad_()
    with gf.intervene(model) as edit:
        edit.set("decoder.embedding", leaf)
        (gradient,) = torch.autograd.grad(model(tokens, keep)[0, 2, 3], leaf)
    same(found.values[0], (gradient * leaf)[0].sum(dim=-1).detach())
    assert found.values[0, 3:].abs().max() == 0  # later tokens say nothing


def test_the_difference_is_explained_by_the_difference() -> None:
    run = Reader("transformer")
    one, other, both = (
        analyses.input_x_gradient(run, "", token, 1, against) for token, against in ((4, None), (9, None), (4, 9))
    )
    same(both.values, one.values - other.values)
    same(both.outputs, one.outputs - other.outputs)
    assert (both.rows, both.against) == (["4"], "9")


def test_a_writer_is_explained_by_source_and_prefix() -> None:
    found = analyses.input_x_gradient(Reader("transformer"), "")
    assert found.rows == [*(str(token) for token in TARGET[0, 1:].tolist()), "2"]  # what was written, and the end
    assert found.columns == [f"e{at}" for at in range(5)] + [f"d{at}" for at in range(4)]
    source, prefix = found.of("encoder"), found.of("decoder")
    assert torch.equal(torch.cat((source.values, prefix.values), dim=1), found.values)
    assert bool((prefix.values.triu(1) == 0).all())
    with pytest.raises(InputError, match=r'^there is no "image" here: there is encoder, decoder$'):
        found.of("image")


def test_an_image_is_explained_by_its_patches() -> None:
    found = analyses.input_x_gradient(Reader("vit"), "")
    assert found.columns == ["e1", "e2", "e3", "e4"]  # without the token of the whole
    assert found.values.abs().min() > 0


def test_words_are_sums_of_their_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    run: Any = gf.load("en-de")
    found = analyses.input_x_gradient(run, "The old station is closed.", position=0)
    words = found.words()
    assert words.of("encoder").columns == ["The", "old", "station", "is", "closed", "."]
    same(words.values.sum(dim=1), found.values.sum(dim=1), 1e-4)
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=lambda values, **facts: facts))
    assert words.pandas() == {"index": found.rows, "columns": words.columns}


def test_occlusion_is_what_is_lost_without_a_token() -> None:
    run = Reader("transformer")
    model, inputs = run.model, run.forced("").inputs
    found = analyses.occlusion(run, "", token=4, position=2)
    with gf.intervene(model) as edit, torch.no_grad():
        before = model(*inputs)[0, 2, 4]
        edit.set("encoder.embedding", model.encoder.embedding.weight.mean(dim=0) * 4, positions=3)
        without = model(*inputs)[0, 2, 4]
    assert float(found.values[0, 3]) == pytest.approx(float(before - without), abs=1e-5)


def test_the_pronoun_decides_the_pronoun() -> None:
    run: Any = gf.load("en-de")
    found = analyses.occlusion(run, "She reads a book.", "Sie", 0, "Er").words().of("encoder")
    assert (found.rows, found.against) == (["Sie"], "Er")
    assert found.columns[int(found.values[0].argmax())] == "She"


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("gpt2", {"position": 9}, "there is no position 9: the output has 5"),
        ("gpt2", {"token": 99}, "there is no token 99: there are 0 to 22"),
        ("gpt2", {"against": -1}, "there is no token -1: there are 0 to 22"),
        ("vit", {"position": 0}, "this model gives one answer for the whole text: leave position out"),
        ("series_encoder", {}, "attribution explains scores of words or labels, and this model answers with numbers"),
        ("gpt2", {"steps": 0}, "the path needs 1 step at least, not 0"),
        ("gpt2", {"baseline": torch.zeros(3)}, "a baseline is one vector \\(16\\), not \\(3,\\)"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(name: str, options: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=f"^{sentence}"):
        analyses.integrated_gradients(Reader(name), "", **options)


def test_a_label_is_named() -> None:
    run: Any = Reader("bert-classes")
    run.labels = ["good", "bad"]
    assert analyses.input_x_gradient(run, "", "bad", against="good").rows == ["bad"]
    with pytest.raises(InputError, match=r'^there is no label "fair": there are good, bad$'):
        analyses.input_x_gradient(run, "", "fair")
