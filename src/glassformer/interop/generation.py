"""Generation settings of a checkpoint: each key of its generation_config.json is understood, of no effect, or refused.

A checkpoint without that file may have the same keys in its config.json, as `transformers` reads it; a captioner has
them there, or in its decoder's part of it. What the keys mean for special tokens is `SpecialTokens`, what they mean for
the search is the section [decode] of a recipe.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from glassformer.errors import InputError
from glassformer.interop.checkpoints import CONFIG, read_config, read_object
from glassformer.interop.converter import Config
from glassformer.text import SpecialTokens, Tokenizer, framed_special_tokens
from glassformer.writing import write_json

GENERATION = "generation_config.json"
FORCED = ("forced_bos_token_id", "forced_eos_token_id")
SPECIAL_IDS = ("decoder_start_token_id", "bos_token_id", "eos_token_id", "pad_token_id")  # config.json may add these
RENAMED = {  # theirs, ours in [decode]
    "num_beams": "beam",
    "length_penalty": "length_penalty",
    "no_repeat_ngram_size": "no_repeat_ngram",
    "repetition_penalty": "repetition_penalty",
    "renormalize_logits": "renormalise",
}
NUMBERS: dict[str, tuple[type, float, float]] = {  # of which type a value is, and from where to where it goes
    **dict.fromkeys(("num_beams", "max_length", "max_new_tokens"), (int, 1, 2**31 - 1)),
    **dict.fromkeys(("no_repeat_ngram_size", "min_length", "min_new_tokens", "top_k"), (int, 0, 2**31 - 1)),
    **dict.fromkeys(("repetition_penalty", "temperature"), (float, math.ulp(0), math.inf)),
    "length_penalty": (float, -10, 10),
    "top_p": (float, math.ulp(0), 1),
    "min_p": (float, 0, 1),
    **dict.fromkeys(("renormalize_logits", "do_sample"), (bool, 0, 1)),
}
EARLY_STOPPING = {False: "estimated", True: "filled", "never": "never"}
TOP_K = 50  # of `transformers`, where tokens are drawn and nothing is said
UNDERSTOOD = {
    *SPECIAL_IDS,
    *NUMBERS,
    *FORCED,
    *("early_stopping", "bad_words_ids", "suppress_tokens"),
}
NEUTRAL: dict[str, Any] = {  # not supported; with this value, as with null, a key has no effect
    "begin_suppress_tokens": [],
    "constraints": [],
    "diversity_penalty": 0.0,
    "dola_layers": None,
    "encoder_no_repeat_ngram_size": 0,
    "encoder_repetition_penalty": 1.0,
    "epsilon_cutoff": 0.0,
    "eta_cutoff": 0.0,
    "exponential_decay_length_penalty": None,
    "force_words_ids": [],
    "guidance_scale": 1.0,
    "is_assistant": False,
    "max_time": None,
    "num_beam_groups": 1,
    "num_return_sequences": 1,
    "penalty_alpha": 0.0,
    "prompt_lookup_num_tokens": None,
    "remove_invalid_values": False,
    "sequence_bias": None,
    "stop_strings": None,
    "token_healing": False,
    "top_h": None,
    "typical_p": 1.0,
    "use_mtp": False,
    "watermarking_config": None,
}
UNRELATED = {  # which tokens are written does not depend on these
    *("transformers_version", "_from_model_config", "_commit_hash"),
    *("use_cache", "cache_implementation", "cache_config", "max_cache_len", "low_memory", "prefill_chunk_size"),
    *("compile_config", "disable_compile", "continuous_batching_config"),
    *("output_attentions", "output_hidden_states", "output_scores", "output_logits", "return_dict_in_generate"),
    *("num_assistant_tokens", "num_assistant_tokens_schedule", "assistant_confidence_threshold"),
    *("assistant_early_exit", "assistant_lookbehind", "assistant_ensemble_weight", "target_lookbehind"),
    *("max_matching_ngram_size", "speculation_type"),
}


def read_generation(folder: Path) -> Config:
    """The generation settings in a folder that are understood."""
    config, (path, found) = _config(folder), _settings(folder)
    settings = {key: config[key] for key in SPECIAL_IDS if key in config} | found
    settings = {key: value for key, value in settings.items() if key in UNDERSTOOD and value is not None}
    for key in settings.keys() & NUMBERS.keys():
        _check_number(path, key, settings[key])
    if settings.get("early_stopping", False) not in (False, True, "never"):
        raise InputError(f'{path}: early_stopping is {settings["early_stopping"]!r}: expected true, false or "never"')
    return settings


def _config(folder: Path) -> Config:
    """The config.json of a checkpoint; where that of a captioner is silent, its decoder's part speaks."""
    config = read_config(folder)
    decoder = config.get("decoder")
    if not isinstance(decoder, dict):
        return config
    return {**config, **{key: value for key, value in decoder.items() if config.get(key) is None}}


def _settings(folder: Path) -> tuple[Path, Config]:
    """The generation settings in a folder, and the file that they are in."""
    if (folder / GENERATION).is_file():
        return folder / GENERATION, read_object(folder / GENERATION, "")
    known = UNDERSTOOD | NEUTRAL.keys()
    return folder / CONFIG, {key: value for key, value in _config(folder).items() if key in known}


def _refuse_others(folder: Path) -> None:
    """Refuse settings by name that are not supported and have an effect."""
    path, found = _settings(folder)
    for key, value in found.items():
        if value is not None and key not in UNDERSTOOD | UNRELATED and value != NEUTRAL.get(key):
            raise InputError(f"{path}: {key} is {value!r}, which is not supported: remove it if you can do without it")


def _check_number(path: Path, key: str, value: Any) -> None:
    kind, least, most = NUMBERS[key]
    fits = isinstance(value, int | float) if kind is float else isinstance(value, kind)
    if not fits or (isinstance(value, bool) and kind is not bool) or not least <= value <= most or value == math.inf:
        raise InputError(f"{path}: {key} is {value!r}, which is no value that it can have")


def decode_keys(folder: Path, encoder_decoder: bool) -> dict[str, Any]:
    """The section [decode] that means what the generation settings of a checkpoint mean."""
    _refuse_others(folder)
    settings = read_generation(folder)
    keys = {"beam": 1} | {ours: settings[theirs] for theirs, ours in RENAMED.items() if theirs in settings}
    known = _config(folder).get("vocab_size")
    if isinstance(known, int) and keys["beam"] > known:
        raise InputError(f"{folder}: num_beams is {keys['beam']}, but the vocabulary has only {known} tokens")
    keys["early_stopping"] = EARLY_STOPPING[settings.get("early_stopping", False)]
    if settings.get("do_sample"):
        if keys["beam"] > 1:
            raise InputError(f"{folder}: do_sample beside num_beams, beam search that draws tokens, is not supported")
        keys["temperature"] = settings.get("temperature", 1.0)
        keys["top_k"] = settings.get("top_k", TOP_K) or None
        keys |= {key: settings[key] for key in ("top_p", "min_p") if key in settings}
    return keys | _lengths(folder, settings, encoder_decoder)


def _lengths(folder: Path, settings: Config, encoder_decoder: bool) -> dict[str, Any]:
    """The lengths of outputs: theirs count the start token, or the prompt, unless they are of new tokens."""
    new = {side: settings[f"{side}_new_tokens"] for side in ("min", "max") if f"{side}_new_tokens" in settings}
    whole = {side: settings[f"{side}_length"] for side in {"min", "max"} - new.keys() if settings.get(f"{side}_length")}
    if encoder_decoder:
        new, whole = {side: max(0, length - 1) for side, length in whole.items()} | new, {}
    if new.get("min", 1) and new and whole:
        (side,) = whole
        raise InputError(
            f"{folder}: {side}_length counts the prompt, but not the other length: give both as new tokens, or neither"
        )
    both = new or whole
    if both.get("min", 0) > both.get("max", math.inf):
        raise InputError(f"{folder}: the least length, {both['min']}, is above the greatest, {both['max']}")
    if new.get("max") == 0:
        raise InputError(f"{folder}: max_length is 1, which leaves no room for an output")
    lengths = {f"{side}_length": length for side, length in (new | whole).items()}
    return lengths | ({"count_prompt": True} if whole else {})


def checkpoint_special_tokens(
    folder: Path, tokenizers: tuple[Tokenizer, ...], encoder_decoder: bool = True
) -> SpecialTokens:
    """The special tokens of a checkpoint: as its files number them; where they are silent, as its tokenizer does."""
    source, target = tokenizers
    vocabulary = int(_config(folder).get("vocab_size", target.size))
    settings = {"eos_token_id": target.end} | read_generation(folder)
    starts = ("decoder_start_token_id", "bos_token_id", "pad_token_id") if encoder_decoder else ("bos_token_id",)
    key = next((key for key in starts if key in settings), starts[0])
    settings.setdefault(key, target.start)

    def check(key: str, tokens: Any, one: bool = False) -> list[int]:
        """The ids under a key: one, or a list."""
        listed = tokens if isinstance(tokens, list) and not one else [tokens]
        for token in listed:
            if type(token) is not int or not 0 <= token < vocabulary:
                valid = f"the vocabulary of the model has the ids 0 to {vocabulary - 1}"
                raise InputError(f"{folder}: {key} has {token!r}, but {valid}")
        return listed

    def ids(key: str) -> list[int]:
        return check(key, settings[key]) if key in settings else []

    if (folder / GENERATION).is_file() or "eos_token_id" in _config(folder):  # else the tokenizer knows
        path, said = _settings(folder)
        if said.get("eos_token_id") is None:
            raise InputError(f"{path}: names no eos_token_id, so that no output would ever end: give it a token's id")
    ends = ids("eos_token_id")
    if not ends:
        raise InputError(f"{folder}: eos_token_id is an empty list: at least one token must end an output")
    words: Any = settings.get("bad_words_ids", [])
    sequences = [check("bad_words_ids", word) for word in (words if isinstance(words, list) else [words]) if word]
    pad = settings.get("pad_token_id")
    forced = [check(key, settings[key], one=True)[0] if key in settings else None for key in FORCED]
    special = SpecialTokens(
        check(key, settings[key], one=True)[0],
        ends[0],
        pad if type(pad) is int and 0 <= pad < vocabulary else ends[0],  # what fills rows is not read
        suppressed=[*(token for token, *more in sequences if not more and token not in ends), *ids("suppress_tokens")],
        other_ends=ends[1:],
        suppressed_sequences=[sequence for sequence in sequences if len(sequence) > 1],
        forced_first=forced[0],
        forced_last=forced[1],
    )
    return framed_special_tokens(special, source, target)


def generation_settings(decode: Mapping[str, Any], positions: int | None, encoder_decoder: bool) -> Config:
    """The generation settings that mean what a section [decode] means, for a model of so many positions, if limited."""
    draws = bool(decode["temperature"])
    settings = {theirs: decode[ours] for theirs, ours in RENAMED.items()} | {"do_sample": draws}
    if draws:
        settings |= {"num_beams": 1, "temperature": decode["temperature"], "top_k": decode["top_k"] or 0}
        settings |= {key: decode[key] for key in ("top_p", "min_p") if decode[key] is not None}
    if settings["num_beams"] > 1:
        settings["early_stopping"] = next(
            key for key, rule in EARLY_STOPPING.items() if rule == decode["early_stopping"]
        )
    else:
        del settings["length_penalty"]  # transformers warns that only beam search reads it
    most, least = decode["max_length"], decode["min_length"]
    beyond = not encoder_decoder and positions is not None and most >= positions  # with a prompt, it would be
    if positions is not None:
        most, least = min(most, positions), min(least, positions)
    unit = "length" if beyond or decode["count_prompt"] else "new_tokens"
    return settings | {f"max_{unit}": most} | ({f"min_{unit}": least} if least else {})


def keep_generation(origin: Path, folder: Path) -> None:
    """Keep the generation settings of a checkpoint in the folder of its import, wherever they were."""
    settings = read_generation(origin)
    if not (folder / GENERATION).is_file() and settings.keys() - {*SPECIAL_IDS}:
        write_json(folder / GENERATION, settings)
