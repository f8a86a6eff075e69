"""Special tokens of a checkpoint, kept in the folder of a run that started with it."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import nn

from glassformer.errors import RunError
from glassformer.files import SETTINGS, regular
from glassformer.interop.generation import FORCED
from glassformer.models import EncoderDecoder
from glassformer.text import SpecialTokens
from glassformer.writing import IMPORT, write_json

SPECIAL_TOKENS = "special_tokens.json"
OLD_FILE = "habits.json"  # of Glassformer 0.1, with other keys
OLD_KEYS = {
    "never": "suppressed",
    "before": "source_prefix",
    "after": "source_suffix",
    "lead": "target_prefix",
}


def write_special_tokens(folder: Path, special: SpecialTokens) -> None:
    """Keep the special tokens of a checkpoint in a run folder."""
    write_json(folder / SPECIAL_TOKENS, asdict(special))


def read_special_tokens(folder: Path) -> SpecialTokens | None:
    """The special tokens that a run folder keeps; None: the run did not start with a checkpoint."""
    path = next((folder / name for name in (SPECIAL_TOKENS, OLD_FILE) if (folder / name).exists()), None)
    if path is None:
        if (folder / IMPORT).is_file():
            raise RunError(f"{folder} has no {SPECIAL_TOKENS}: import its checkpoint again")
        return None
    try:
        found = json.loads(regular(path, SETTINGS).read_text(encoding="utf-8"))
        return SpecialTokens(**{OLD_KEYS.get(key, key): value for key, value in found.items()})
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise RunError(f"{path} is damaged: {error}") from None


def special_keys(model: nn.Module, special: SpecialTokens) -> dict[str, Any]:
    """The keys of config.json that number the special tokens of a model which writes."""
    start = "decoder_start_token_id" if isinstance(model, EncoderDecoder) else "bos_token_id"
    ends = [special.end, *special.other_ends]
    words = [[token] for token in special.suppressed] + special.suppressed_sequences
    forced = zip(FORCED, (special.forced_first, special.forced_last), strict=True)
    return {
        "pad_token_id": special.pad,
        "eos_token_id": ends if special.other_ends else special.end,
        start: special.start,
        **({"bad_words_ids": words} if special.suppressed_sequences else {}),
        **{key: token for key, token in forced if token is not None},
    }
