"""A family that `transformers` has under another's name is written as that, and gives the same numbers."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import glassformer as gf
from glassformer import interop
from glassformer.errors import ConfigurationError
from glassformer.models import transformer
from glassformer.parts import PostNorm, RMSNorm, cosine_similarity, gelu, relu
from glassformer.parts.schemes import rotary
from glassformer.runs import export_run
from tiny import IDLE, recipe

transformers = pytest.importorskip("transformers")
POST: dict[str, Any] = {"residual": PostNorm, "dropout": 0.0}
SOURCE, TARGET = torch.tensor([[5, 6, 7, 8], [9, 4, 3, 2]]), torch.tensor([[1, 5, 6], [1, 9, 9]])


@pytest.mark.parametrize(
    ("width", "hidden", "vocabulary", "activation"),
    [(8, 12, 30, relu), (16, 16, 16, gelu), (12, 24, 12, relu)],  # where sizes are equal, too
)
def test_a_post_norm_transformer_is_a_marian(
    tmp_path: Path, width: int, hidden: int, vocabulary: int, activation: Any
) -> None:
    ours = transformer(vocabulary, width, 2, 2, hidden, decoder_layers=1, activation=activation, **POST).eval()
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.add_(torch.randn_like(parameter) / 5)  # norms and biases that are not 1 and 0
    interop.save(ours, tmp_path)
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path).eval()
    with torch.inference_mode():
        expected = ours(SOURCE, TARGET)
        found = theirs(input_ids=SOURCE, decoder_input_ids=TARGET).logits
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(interop.load(tmp_path)(SOURCE, TARGET), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"dropout": 0.1}, r'residual = "pre" .* train one with model.residual = "post", or with the family bart'),
        (POST | {"norm": RMSNorm}, r'norm = "rms" .* model.norm = "layer"'),
        (POST | {"positions": rotary}, r'positions = "rotary" .* model.positions = "sinusoidal"'),
        (POST | {"similarity": cosine_similarity}, r'similarity = "cosine" .* model.similarity = "scaled_dot"'),
        (POST | {"gated": True}, r"gated = true .* model.gated = false"),
        (POST | {"tie_output": False}, r"tie_output = false .* model.tie_output = true"),
    ],
)
def test_other_transformers_are_refused_with_what_to_do(change: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=f"^a transformer with {sentence}"):
        interop.save(transformer(30, 8, 2, 1, 12, **change), tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("model", [{"residual": "post"}, {"family": "bart"}, {"family": "marian"}])
def test_an_exported_run_opens_with_the_classes_that_are_named(tmp_path: Path, model: dict[str, Any]) -> None:
    run = gf.train(recipe(IDLE, {"model": model}, {"train": {"steps": 2}}), tmp_path / "run")
    assert export_run(run, tmp_path / "out") == "AutoModelForSeq2SeqLM and AutoTokenizer"
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert type(theirs).__name__ == json.loads((tmp_path / "out" / "config.json").read_text())["architectures"][0]
    (source, _), *_ = run.examples("test")
    ids = tokenizer(source, return_tensors="pt").input_ids
    written = torch.tensor([[run.tokenizer.start, *ids[0].tolist()]])
    with torch.inference_mode():
        expected = run.model(ids, written)
        found = theirs(input_ids=ids, decoder_input_ids=written).logits
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
