"""Generation settings of checkpoints: each key is understood, of no effect, or refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from glassformer import interop
from glassformer.errors import GlassformerError, InputError
from glassformer.interop.generation import (
    NEUTRAL,
    UNDERSTOOD,
    UNRELATED,
    checkpoint_special_tokens,
    decode_keys,
)
from glassformer.interop.special_tokens import special_keys
from glassformer.models import captioner, gpt2, marian
from glassformer.recipe import Decode
from glassformer.recipe import Tokenizer as Section
from glassformer.runs import export_run, import_run
from glassformer.text import Tokenizer

TEXTS = ["the dog saw the cat", "a cat sat on the mat", "the moon was big and bright"]
TOKENIZER = Tokenizer.train(TEXTS, Section(kind="character", vocabulary=40))
LAST = TOKENIZER.size - 1


def checkpoint(folder: Path, settings: dict[str, Any], model: str = "gpt2", where: str = "generation_config") -> Path:
    """A checkpoint with generation settings in their own file or in config.json."""
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"width": 16, "heads": 2, "layers": 1}
    made = gpt2(TOKENIZER.size, **sizes, length=40) if model == "gpt2" else marian(TOKENIZER.size, **sizes, hidden=16)
    ends = {"eos_token_id": TOKENIZER.end, "pad_token_id": 0}
    interop.save(made, folder, ends)
    TOKENIZER.save(folder / "tokenizer.json")
    path = folder / f"{where}.json"
    known = json.loads(path.read_text()) if path.exists() else ends
    path.write_text(json.dumps(known | settings))
    return folder


@pytest.mark.parametrize(
    ("settings", "encoder_decoder", "keys"),
    [
        ({}, True, {}),
        ({"num_beams": 4, "early_stopping": True}, True, {"beam": 4, "early_stopping": "filled"}),
        ({"early_stopping": "never", "length_penalty": 2.0}, True, {"early_stopping": "never", "length_penalty": 2.0}),
        ({"no_repeat_ngram_size": 3, "repetition_penalty": 1.2}, False,
         {"no_repeat_ngram": 3, "repetition_penalty": 1.2}),
        ({"max_length": 20, "min_length": 5}, True, {"max_length": 19, "min_length": 4}),
        ({"max_length": 20, "min_length": 5}, False, {"max_length": 20, "min_length": 5, "count_prompt": True}),
        ({"max_length": 20, "max_new_tokens": 7, "min_length": 0}, False, {"max_length": 7}),
        ({"max_new_tokens": 7, "min_new_tokens": 2}, False, {"max_length": 7, "min_length": 2}),
        ({"do_sample": True}, False, {"temperature": 1.0, "top_k": 50}),
        ({"do_sample": True, "temperature": 0.6, "top_k": 0, "top_p": 0.9}, False,
         {"temperature": 0.6, "top_k": None, "top_p": 0.9}),
        ({"do_sample": False, "temperature": 0.6, "top_p": 0.9}, False, {}),
        ({"renormalize_logits": True, "num_beams": 6, "use_cache": False}, True, {"renormalise": True, "beam": 6}),
    ],
)  # fmt: skip
def test_settings_become_the_keys_that_mean_the_same(
    settings: dict[str, Any], encoder_decoder: bool, keys: dict[str, Any], tmp_path: Path
) -> None:
    checkpoint(tmp_path, settings)
    found = decode_keys(tmp_path, encoder_decoder)
    assert found == {"beam": 1, "early_stopping": "estimated"} | keys
    Decode(**found)


def test_what_a_captioner_leaves_open_its_decoder_says(tmp_path: Path) -> None:
    """As `transformers` reads a config.json without a generation_config.json beside it."""
    sizes: dict[str, Any] = {"width": 8, "heads": 2, "layers": 1, "hidden": 8, "length": 40}
    interop.save(captioner(TOKENIZER.size + 3, image=4, patch=2, **sizes), tmp_path)
    TOKENIZER.save(tmp_path / "tokenizer.json")
    config = json.loads((tmp_path / "config.json").read_text())
    inner = {"eos_token_id": [LAST, LAST + 3], "num_beams": 4, "no_repeat_ngram_size": 2, "max_length": 20}
    config |= {"decoder": config["decoder"] | inner, "decoder_start_token_id": TOKENIZER.start}
    (tmp_path / "config.json").write_text(json.dumps(config | {"eos_token_id": None, "max_length": 9}))
    keys = {"beam": 4, "no_repeat_ngram": 2, "max_length": 8, "early_stopping": "estimated"}
    assert decode_keys(tmp_path, True) == keys
    special = checkpoint_special_tokens(tmp_path, (TOKENIZER, TOKENIZER))
    assert (special.start, special.end, special.other_ends) == (TOKENIZER.start, LAST, [LAST + 3])
    config["decoder"]["typical_p"] = 0.5
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match=r"typical_p is 0.5, which is not supported"):
        decode_keys(tmp_path, True)


@pytest.mark.parametrize("where", ["generation_config", "config"])
@pytest.mark.parametrize("key", NEUTRAL)
def test_a_setting_that_is_not_supported_is_refused_by_name(key: str, where: str, tmp_path: Path) -> None:
    neutral = NEUTRAL[key]
    checkpoint(tmp_path / "neutral", {key: neutral}, where=where)
    import_run(tmp_path / "neutral", tmp_path / "run")
    checkpoint(tmp_path / "other", {key: [[3]] if isinstance(neutral, list) else 3}, where=where)
    with pytest.raises(GlassformerError, match=rf"{key} is .*, (which is not supported|a key that is not known)"):
        import_run(tmp_path / "other", tmp_path / "refused")
    assert not (tmp_path / "refused").exists()


def test_a_setting_that_nobody_knows_is_refused_by_name(tmp_path: Path) -> None:
    checkpoint(tmp_path / "x", {"chat_format": "chatml"})
    with pytest.raises(InputError, match=r"chat_format is 'chatml', which is not supported"):
        import_run(tmp_path / "x", tmp_path / "run")


def test_every_setting_of_transformers_is_in_a_list() -> None:
    transformers = pytest.importorskip("transformers")
    assert {*transformers.GenerationConfig().to_dict()} <= UNDERSTOOD | NEUTRAL.keys() | UNRELATED


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"num_beams": 0}, "num_beams is 0, which is no value that it can have"),
        ({"num_beams": 10**6}, "num_beams is 1000000, but the vocabulary has only"),
        ({"min_length": 30, "max_length": 10}, "the least length, 30, is above the greatest, 10"),
        ({"num_beams": True}, "num_beams is True, which is no value"),
        ({"repetition_penalty": "much"}, "repetition_penalty is 'much', which is no value"),
        ({"top_p": 1.5}, "top_p is 1.5, which is no value"),
        ({"early_stopping": "soon"}, "early_stopping is 'soon': expected true, false or \"never\""),
        ({"do_sample": True, "num_beams": 3}, "do_sample beside num_beams"),
        ({"max_new_tokens": 9, "min_length": 4}, "min_length counts the prompt, but not the other length"),
        ({"eos_token_id": LAST + 1}, f"eos_token_id has {LAST + 1}, but the vocabulary of the model has the ids 0 to"),
        ({"eos_token_id": []}, "eos_token_id is an empty list"),
        ({"eos_token_id": None}, "names no eos_token_id, so that no output would ever end"),
        ({"bad_words_ids": [[5, -1]]}, "bad_words_ids has -1, but the vocabulary"),
        ({"bad_words_ids": "damn"}, "bad_words_ids has 'damn', but the vocabulary"),
        ({"forced_bos_token_id": [5, 6]}, r"forced_bos_token_id has \[5, 6\], but the vocabulary"),
    ],
)
def test_settings_that_cannot_be_are_refused_before_anything_is_written(
    settings: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    checkpoint(tmp_path / "x", settings)
    with pytest.raises(InputError, match=sentence):
        import_run(tmp_path / "x", tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("in_config", [None, TOKENIZER.end])
def test_an_end_that_generate_would_not_know_is_refused(in_config: int | None, tmp_path: Path) -> None:
    """`transformers` writes a null into config.json, and leaves the key out of generation_config.json, which counts."""
    checkpoint(tmp_path / "x", {"eos_token_id": in_config}, where="config")
    (tmp_path / "x" / "generation_config.json").write_text('{"num_beams": 1}')
    with pytest.raises(InputError, match=r"generation_config.json: names no eos_token_id"):
        import_run(tmp_path / "x", tmp_path / "run")


@pytest.mark.parametrize("where", ["generation_config", "config"])
def test_settings_survive_import_and_export(where: str, tmp_path: Path) -> None:
    settings = {
        "num_beams": 3, "no_repeat_ngram_size": 2, "forced_bos_token_id": 7, "forced_eos_token_id": TOKENIZER.end,
        "bad_words_ids": [[5], [6, 7]], "max_length": 9, "eos_token_id": [TOKENIZER.end, 8],
    }  # fmt: skip
    first = import_run(checkpoint(tmp_path / "x", settings, "marian", where), tmp_path / "run")
    assert (first.recipe.decode.beam, first.recipe.decode.no_repeat_ngram, first.recipe.decode.max_length) == (3, 2, 8)
    special = first.special  # type: ignore[attr-defined]
    assert (special.forced_first, special.forced_last, special.other_ends) == (7, TOKENIZER.end, [8])
    assert (special.suppressed, special.suppressed_sequences) == ([5], [[6, 7]])
    export_run(first, tmp_path / "out")
    again = import_run(tmp_path / "out", tmp_path / "again")
    assert again.recipe.decode == first.recipe.decode
    assert again.special == special  # type: ignore[attr-defined]
    assert [each.text for each in again.translate(TEXTS)] == [each.text for each in first.translate(TEXTS)]


def test_special_tokens_that_a_run_started_with_are_in_its_export(tmp_path: Path) -> None:
    settings = {"eos_token_id": [TOKENIZER.end, 8], "bad_words_ids": [[5], [6, 7]], "forced_bos_token_id": 7}
    run: Any = import_run(checkpoint(tmp_path / "x", settings, "marian"), tmp_path / "run")
    keys = special_keys(run.model, run.special)
    assert {key: keys[key] for key in settings} == settings
