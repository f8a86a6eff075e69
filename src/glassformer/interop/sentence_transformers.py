"""The files in which sentence-transformers says how an encoder's vectors become one vector of a text.

modules.json                  the steps: Transformer, Pooling, perhaps Normalize
1_Pooling/config.json         which vectors are pooled
sentence_bert_config.json     how many tokens are read
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from glassformer.errors import InputError
from glassformer.files import read_whole

MODULES, POOLING, LIMITS = "modules.json", "1_Pooling/config.json", "sentence_bert_config.json"
MODES = {"mean": "pooling_mode_mean_tokens", "first": "pooling_mode_cls_token"}
LONGEST = 1 << 20  # bytes of such a file


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
    limits = _read(folder / LIMITS, dict) if (folder / LIMITS).is_file() else {}
    most = limits.get("max_seq_length")
    return {
        "pooling": chosen[0],
        "normalised": steps[-1] == "Normalize",
        **({"max_tokens": most} if isinstance(most, int) and most > 0 else {}),
    }


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
