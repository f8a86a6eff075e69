"""Imported runs: checkpoints from elsewhere, ready for use.

The folder is a checkpoint in Hugging Face's layout and a run folder at once:

config.json, model.safetensors     the checkpoint
tokenizer.json                     or source.tokenizer.json and target.tokenizer.json
import.json                        where it is from, and its special tokens
generation_config.json, …          what came along and only `transformers` reads
"""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from glassformer.errors import InputError, RunError
from glassformer.models import DecoderOnly, EncoderDecoder
from glassformer.pretrained import files, load, save
from glassformer.run.folder import JOINT, SEPARATE, write_text
from glassformer.text import Tokenizer

IMPORT, GENERATION = "import.json", "generation_config.json"
ALONG = (GENERATION, "special_tokens_map.json", "tokenizer_config.json")


@dataclass(frozen=True)
class Habits:
    """The numbers of a checkpoint's special tokens.

    `start` is what it reads first (None: a prompt; where that is empty, `begin`), `end` is what ends an output, `pad`
    fills up, and what it must `never` write.
    """

    start: int | None
    end: int
    pad: int
    begin: int
    never: list[int] = field(default_factory=list)


def import_checkpoint(source: str | Path, folder: Path) -> nn.Module:
    """Make a run folder of a checkpoint that writes text: a folder, or a name on the hub."""
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{folder} is a file: choose a folder")
    if folder.exists() and any(folder.iterdir()):
        raise RunError(f"{folder} already exists and is not empty: choose another folder")
    found = files.find(source)
    config, model = files.read_config(found), load(found)
    if not isinstance(model, DecoderOnly | EncoderDecoder):
        raise InputError(f"{source} reads, but does not write: use it from Python, with glassformer.pretrained.load")
    tokenizers = read_tokenizers(found, config)
    vocabulary = model.decoder.embedding.vocabulary
    for tokenizer in tokenizers:
        if tokenizer.size > vocabulary:
            raise InputError(
                f"{source}: its tokenizer has {tokenizer.size} tokens, but its model only {vocabulary}: "
                "they do not belong together"
            )
    told = {key: value for key, value in {**config, **_generation(found)}.items() if value is not None}
    try:
        habits = _habits(told, model, tokenizers[1])
    except (TypeError, ValueError) as error:
        raise InputError(f"{source}: its config.json does not number its special tokens: {error}") from None
    save(model, folder)
    write_tokenizers(tokenizers, found, folder)
    write_text(folder / IMPORT, json.dumps({"format": 1, "source": str(source), **asdict(habits)}, indent=2) + "\n")
    return model


def write_tokenizers(tokenizers: tuple[Tokenizer, Tokenizer], found: Path | None, folder: Path) -> None:
    """Write the tokenizers of source and target, and copy what the folder they were found in says to others."""
    for name, tokenizer in zip(JOINT if tokenizers[0] is tokenizers[1] else SEPARATE, tokenizers, strict=False):
        tokenizer.save(folder / name)
    if found is not None and found.resolve() != folder.resolve():
        for name in ALONG:
            if (found / name).is_file():
                shutil.copyfile(found / name, folder / name)


def read_tokenizers(folder: Path, config: dict[str, Any]) -> tuple[Tokenizer, Tokenizer]:
    """The tokenizers that a checkpoint brings along, of source and target."""
    if all((folder / name).is_file() for name in SEPARATE):
        source, target = (Tokenizer.load(folder / name, complete=False) for name in SEPARATE)
        return source, target
    if (folder / JOINT[0]).is_file():
        joint = Tokenizer.load(folder / JOINT[0], complete=False)
        return joint, joint
    if "grapheme_chars" in config and "phoneme_chars" in config:  # spelling to sound: letters by their places
        return Tokenizer.of_letters(config["grapheme_chars"]), Tokenizer.of_letters(config["phoneme_chars"])
    raise InputError(
        f"{folder} brings no tokenizer.json along: with transformers, load its tokenizer and save_pretrained it there"
    )


def read_habits(folder: Path) -> Habits:
    """The special tokens of an imported run."""
    try:
        told = json.loads((folder / IMPORT).read_text(encoding="utf-8"))
        return Habits(told["start"], int(told["end"]), int(told["pad"]), int(told["begin"]), list(told["never"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{folder / IMPORT} is damaged: {error}") from None


def _generation(folder: Path) -> dict[str, Any]:
    """What newer checkpoints say of generation in a file of its own."""
    try:
        told = json.loads((folder / GENERATION).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise InputError(f"{folder / GENERATION} cannot be read: {error}") from None
    return told if isinstance(told, dict) else {}


def _habits(config: dict[str, Any], model: nn.Module, tokenizer: Tokenizer) -> Habits:
    """What the config says of special tokens, and where it is silent the tokenizer."""
    ends = config.get("eos_token_id", tokenizer.end)
    end = int(ends[0] if isinstance(ends, list) else ends)
    pad = int(config.get("pad_token_id", end))
    starts = [config[key] for key in ("decoder_start_token_id", "bos_token_id", "pad_token_id") if key in config]
    start = int([*starts, tokenizer.start][0]) if isinstance(model, EncoderDecoder) else None
    never = [int(words[0]) for words in config.get("bad_words_ids", []) if len(words) == 1]
    return Habits(start, end, end if pad < 0 else pad, int(config.get("bos_token_id", tokenizer.start)), never)
