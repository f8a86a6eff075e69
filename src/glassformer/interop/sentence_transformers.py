"""The files in which sentence-transformers says how an encoder's vectors become one vector of a text.

modules.json                         the steps: Transformer, Pooling, perhaps Normalize
1_Pooling/config.json                which vectors are pooled
sentence_bert_config.json            how many tokens are read; since version 6, tokenizer_config.json says it
config_sentence_transformers.json    what is put before each text

Every key of the last three is understood, of no effect, or refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from glassformer.errors import InputError
from glassformer.files import read_whole

MODULES, POOLING, LIMITS = "modules.json", "1_Pooling/config.json", "sentence_bert_config.json"
OLD_LIMITS = "sentence_roberta_config.json"
PROMPTS, TOKENIZER_CONFIG = "config_sentence_transformers.json", "tokenizer_config.json"
MODES = {"mean": "pooling_mode_mean_tokens", "first": "pooling_mode_cls_token"}
LONGEST = 1 << 20  # bytes of such a file
IGNORED = {  # vectors do not depend on these keys
    *("__version__", "model_type", "prompts", "similarity_fn_name", "unpad_inputs"),
    *("word_embedding_dimension", "embedding_dimension", "include_prompt"),
}
FIXED = {
    "transformer_task": "feature-extraction",
    "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
    "module_output_name": "token_embeddings",
}


def sentence_settings(folder: Path) -> dict[str, Any] | None:
    """The pooling, `normalised` and `max_tokens` of a checkpoint of sentence-transformers; None: it is none."""
    if not (folder / MODULES).is_file():
        return None
    steps = [str(step.get("type", "")).rpartition(".")[2] for step in _read(folder / MODULES, list)]
    if steps not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise InputError(f"{folder / MODULES}: the steps {', '.join(steps)} are not supported: only Pooling, Normalize")
    path = next(str(step.get("path", "")) for step in _read(folder / MODULES, list) if "Pooling" in str(step["type"]))
    config = _read(folder / Path(path).name / "config.json", dict)
    chosen = [mode for mode, key in MODES.items() if config.get(key) is True]
    other = [key for key, value in config.items() if key.startswith("pooling_mode_") and value is True]
    named = {"mean": "mean", "cls": "first"}.get(str(config.get("pooling_mode", "")))
    if not chosen and not other and named is not None:  # as versions from 6 write it
        chosen, other = [named], [named]
    if len(chosen) != 1 or len(other) != 1:
        modes = ", ".join(other) or str(config.get("pooling_mode", "none"))
        raise InputError(f"{folder / Path(path).name}: the pooling {modes} is not supported: only mean or cls")
    _check(folder / Path(path).name / "config.json", config, {"pooling_mode", *other})
    place = next((folder / name for name in (LIMITS, OLD_LIMITS) if (folder / name).is_file()), folder / LIMITS)
    prompts, limits, tokenizer = (
        _read(path, dict) if path.is_file() else {} for path in (folder / PROMPTS, place, folder / TOKENIZER_CONFIG)
    )
    name, written = prompts.get("default_prompt_name"), prompts.get("prompts")
    if isinstance(name, str) and isinstance(written, dict) and not written.get(name):
        del prompts["default_prompt_name"]  # nothing is put before a text
    _check(folder / PROMPTS, prompts, ())
    _check(place, limits, {"max_seq_length"})
    most = limits.get("max_seq_length") or tokenizer.get("model_max_length")
    return {
        "pooling": chosen[0],
        "normalised": steps[-1] == "Normalize",
        **({"max_tokens": most} if type(most) is int and 0 < most < 1 << 31 else {}),
    }


def _check(path: Path, config: dict[str, Any], read: Collection[str]) -> None:
    """Refuse a key by name that is not understood and has an effect."""
    for key, value in config.items():
        if value and key not in IGNORED and key not in read and value != FIXED.get(key):
            hint = "delete it if the vectors do not depend on it"
            raise InputError(f"{path}: {key} is {value!r:.80}, which is not supported: {hint}")


def sentence_files(pooling: str, normalised: bool, max_tokens: int, width: int) -> dict[str, Any]:
    """The contents of these files, by name, for a run that is exported."""
    names = ["Transformer", "Pooling", *(["Normalize"] if normalised else [])]
    steps = [
        {
            "idx": number,
            "name": str(number),
            "path": "" if name == "Transformer" else f"{number}_{name}",
            "type": f"sentence_transformers.models.{name}",
        }
        for number, name in enumerate(names)
    ]
    modes = {key: mode == pooling for mode, key in MODES.items()}
    return {
        MODULES: steps,
        POOLING: {"word_embedding_dimension": width, **modes},
        LIMITS: {"max_seq_length": max_tokens, "do_lower_case": False},
    }


def _read(path: Path, kind: type[Any]) -> Any:
    try:
        found = json.loads(read_whole(path, LONGEST))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} cannot be read: {error}") from None
    if not isinstance(found, kind) or (kind is list and not all(isinstance(each, dict) for each in found)):
        raise InputError(f"{path} does not hold what sentence-transformers writes")
    return found
