"""Imported generation settings: the outputs are those of `generate`, token for token, alone or together."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from glassformer.recipe import Tokenizer as Section
from glassformer.runs import import_run
from glassformer.text import Tokenizer

transformers = pytest.importorskip("transformers")
TEXTS = ["the dog saw the cat", "a mat", "the moon was big and bright"]
LENGTH = 9
FAMILIES = {  # a seed for weights with which outputs differ, how large they are, and a token that ends some outputs
    "BartForConditionalGeneration": (7, 0.4, 19),
    "T5ForConditionalGeneration": (1, 0.5, 15),
    "GPT2LMHeadModel": (1, 0.5, 15),
    "LlamaForCausalLM": (1, 0.5, 15),
}
TWO = ("BartForConditionalGeneration", "LlamaForCausalLM")


@cache
def tokenizer() -> Tokenizer:
    return Tokenizer.train(TEXTS, Section(kind="character", vocabulary=40))


@cache
def theirs(family: str) -> Any:
    """A random model that is sure of itself, and ends its outputs at different lengths."""
    seed, size, end = FAMILIES[family]
    torch.manual_seed(seed)
    small = {"vocab_size": tokenizer().size, "pad_token_id": 0, "eos_token_id": end, "bos_token_id": 1}
    if family.startswith("Bart"):
        sides = {f"{side}_{key}": n for side in ("encoder", "decoder")
                 for key, n in (("layers", 1), ("attention_heads", 2), ("ffn_dim", 16))}  # fmt: skip
        config = transformers.BartConfig(**small, **sides, d_model=16, decoder_start_token_id=1, dropout=0.0)
    elif family.startswith("T5"):
        config = transformers.T5Config(
            **small, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2, decoder_start_token_id=0
        )
    elif family.startswith("GPT2"):
        config = transformers.GPT2Config(**small, n_embd=16, n_layer=1, n_head=2, n_positions=64)
    else:
        config = transformers.LlamaConfig(
            **small, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
        )
    model = getattr(transformers, family)(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(size * torch.randn_like(parameter))
    return model.eval()


def base(family: str) -> dict[str, Any]:
    """The settings that all tests have."""
    start = theirs(family).config.to_dict().get("decoder_start_token_id")
    ids = {"eos_token_id": FAMILIES[family][2], "pad_token_id": 0, "bos_token_id": 1, "decoder_start_token_id": start}
    return {"max_new_tokens": LENGTH, **{key: token for key, token in ids.items() if token is not None}}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The checkpoints, whose generation settings each test writes."""
    found = {family: tmp_path_factory.mktemp(family) for family in FAMILIES}
    for family, folder in found.items():
        theirs(family).save_pretrained(folder)
        tokenizer().save(folder / "tokenizer.json")
    return found


def expected(family: str, settings: dict[str, Any], **options: Any) -> list[list[int]]:
    """The new tokens of `generate`, without the end."""
    model, ends, found = theirs(family), settings["eos_token_id"], []
    model.generation_config = transformers.GenerationConfig(**settings)
    for text in TEXTS:
        ids = torch.tensor([tokenizer().encode(text)])
        row = model.generate(ids, attention_mask=torch.ones_like(ids), **options)[0].tolist()
        row = row[1:] if model.config.is_encoder_decoder else row[ids.shape[1] :]
        ends = ends if isinstance(ends, list) else [ends]
        found.append(next((row[:place] for place, token in enumerate(row) if token in ends), row))
    return found


def compare(family: str, settings: dict[str, Any], checkpoint: Path, folder: Path, **options: Any) -> list[list[int]]:
    """What `generate` writes, which our run has written as well: all texts together, and each alone."""
    settings = base(family) | settings
    (checkpoint / "generation_config.json").write_text(json.dumps(settings))
    run = import_run(checkpoint, folder, force=True)
    write = run.translate if theirs(family).config.is_encoder_decoder else run.generate
    wanted = expected(family, settings, **options)
    assert [each.ids for each in write(TEXTS)] == wanted
    assert [write([text])[0].ids for text in TEXTS] == wanted
    return wanted


@cache
def plain(family: str, beams: int) -> list[list[int]]:
    """What the model writes without further settings."""
    return expected(family, base(family) | {"num_beams": beams})


def sequences(family: str, beams: int, size: int) -> list[list[int]]:
    """Sequences of tokens that the model would write."""
    return [row[place : place + size] for row in plain(family, beams) for place in range(1, len(row) - size)]


SETTINGS: dict[str, dict[str, Any]] = {
    "none": {},
    "several ends": {"eos_token_id": [15, 14, 7]},
    "forced first token": {"forced_bos_token_id": 7},
    "forced last token": {"forced_eos_token_id": 11, "max_new_tokens": 4},
    "no repeated pair": {"no_repeat_ngram_size": 2},
    "no repeated triple": {"no_repeat_ngram_size": 3},
    "repetition penalty": {"repetition_penalty": 1.7},
    "repetition reward": {"repetition_penalty": 0.7},
    "least length": {"min_length": 16, "max_new_tokens": None, "max_length": 30},
    "least new tokens": {"min_new_tokens": 8},
    "length": {"max_new_tokens": None, "max_length": 29},
    "long outputs": {"length_penalty": 3.0},
    "short outputs": {"length_penalty": -1.0, "early_stopping": "never"},
    "stops when filled": {"early_stopping": True},
    "never stops early": {"early_stopping": "never", "length_penalty": 3.0},
    "suppressed": {"suppress_tokens": [5, 6, 7, 8, 9, 10]},
    "renormalised": {"renormalize_logits": True, "suppress_tokens": [5, 6, 7, 8, 9, 10], "no_repeat_ngram_size": 2},
    "all of them": {
        "eos_token_id": [15, 11], "forced_eos_token_id": 11, "no_repeat_ngram_size": 2, "repetition_penalty": 1.2,
        "min_new_tokens": 3, "renormalize_logits": True, "length_penalty": 0.6, "early_stopping": True,
        "bad_words_ids": [[5], [6, 7], [15]],
    },
}  # fmt: skip


@pytest.mark.parametrize("name", SETTINGS)
def test_each_setting_means_what_it_means_to_generate(name: str, folders: dict[str, Path], tmp_path: Path) -> None:
    changed = []
    for family in TWO:
        for beams in (1, 4):
            found = compare(family, {**SETTINGS[name], "num_beams": beams}, folders[family], tmp_path / "run")
            changed.append(found != plain(family, beams))
    assert any(changed) is (name != "none")


@pytest.mark.parametrize("beams", [1, 4])
@pytest.mark.parametrize("family", FAMILIES)
def test_all_settings_go_together_in_every_family(
    family: str, beams: int, folders: dict[str, Path], tmp_path: Path
) -> None:
    for use_cache in (True, False):
        settings = {**SETTINGS["all of them"], "num_beams": beams}
        compare(family, settings, folders[family], tmp_path / "run", use_cache=use_cache)


@pytest.mark.parametrize("beams", [1, 4])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_bad_words_of_several_tokens_are_not_written(
    size: int, beams: int, folders: dict[str, Path], tmp_path: Path
) -> None:
    for family in TWO:
        words = sequences(family, beams, size)
        found = compare(family, {"bad_words_ids": words, "num_beams": beams}, folders[family], tmp_path / "run")
        assert found != plain(family, beams)
