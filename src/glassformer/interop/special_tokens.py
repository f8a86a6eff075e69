"""Special tokens of a checkpoint: read from its files, kept in the folder of a run that started with it."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from torch import nn

from glassformer.errors import InputError, RunError
from glassformer.interop.checkpoints import read_config, read_object
from glassformer.models import EncoderDecoder
from glassformer.text import SpecialTokens, Tokenizer, framed_special_tokens
from glassformer.writing import write_json

GENERATION, SPECIAL_TOKENS, IMPORT = "generation_config.json", "special_tokens.json", "import.json"
OLD_FILE = "habits.json"  # of Glassformer 0.1, with other keys
OLD_KEYS = {
    "never": "suppressed",
    "before": "source_prefix",
    "after": "source_suffix",
    "lead": "target_prefix",
}


def checkpoint_special_tokens(
    folder: Path, tokenizers: tuple[Tokenizer, Tokenizer], encoder_decoder: bool = True
) -> SpecialTokens:
    """The special tokens of a checkpoint: as its files number them; where they are silent, as its tokenizer does."""
    generation = folder / GENERATION  # where newer checkpoints number them
    config = read_config(folder) | (read_object(generation, "") if generation.exists() else {})
    numbered = {key: value for key, value in config.items() if value is not None}
    source, target = tokenizers
    keys = ("decoder_start_token_id", "bos_token_id", "pad_token_id") if encoder_decoder else ("bos_token_id",)
    try:
        ends = numbered.get("eos_token_id", target.end)
        end = int(ends[0] if isinstance(ends, list) else ends)
        pad = int(numbered.get("pad_token_id", end))
        start = int(next((numbered[key] for key in keys if key in numbered), target.start))
        never = [int(words[0]) for words in numbered.get("bad_words_ids", []) if len(words) == 1]
    except (TypeError, ValueError) as error:
        raise InputError(f"{folder}: its config.json does not number its special tokens: {error}") from None
    return framed_special_tokens(start, end, end if pad < 0 else pad, never, source, target)


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
        found = json.loads(path.read_text(encoding="utf-8"))
        return SpecialTokens(**{OLD_KEYS.get(key, key): value for key, value in found.items()})
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise RunError(f"{path} is damaged: {error}") from None


def special_keys(model: nn.Module, special: SpecialTokens) -> dict[str, int]:
    """The keys of config.json that number the special tokens of a model which writes."""
    start = "decoder_start_token_id" if isinstance(model, EncoderDecoder) else "bos_token_id"
    return {"pad_token_id": special.pad, "eos_token_id": special.end, start: special.start}
