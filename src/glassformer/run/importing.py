"""Imported runs: checkpoints from elsewhere, ready for use.

The folder is a checkpoint in Hugging Face's layout and a run folder at once:

config.json, model.safetensors     the checkpoint
tokenizer.json                     or source.tokenizer.json and target.tokenizer.json
import.json                        where it is from, and its special tokens
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import nn

from glassformer.errors import InputError, RunError
from glassformer.models import DecoderOnly, EncoderDecoder
from glassformer.pretrained import files, load, save
from glassformer.run.folder import JOINT, SEPARATE, write_text
from glassformer.text import Tokenizer

IMPORT = "import.json"


@dataclass(frozen=True)
class Habits:
    """The numbers of a checkpoint's special tokens: what it reads first, what ends an output, what fills up."""

    start: int | None  # None: it goes on with a prompt
    end: int
    pad: int


def import_checkpoint(source: str | Path, folder: Path) -> nn.Module:
    """Make a run folder of a checkpoint that writes text: a folder, or a name on the hub."""
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
    habits = _habits(config, model, tokenizers[1])
    save(model, folder)
    for name, tokenizer in zip(JOINT if tokenizers[0] is tokenizers[1] else SEPARATE, tokenizers, strict=False):
        tokenizer.save(folder / name)
    write_text(folder / IMPORT, json.dumps({"format": 1, "source": str(source), **asdict(habits)}, indent=2) + "\n")
    return model


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
        return Habits(told["start"], int(told["end"]), int(told["pad"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{folder / IMPORT} is damaged: {error}") from None


def _habits(config: dict[str, Any], model: nn.Module, tokenizer: Tokenizer) -> Habits:
    """What the config says of special tokens, and where it is silent the tokenizer."""
    ends = config.get("eos_token_id")
    end = (ends[0] if isinstance(ends, list) and ends else ends) if ends is not None else tokenizer.end
    pad = config.get("pad_token_id")
    start = None
    if isinstance(model, EncoderDecoder):
        start = next(
            (config[key] for key in ("decoder_start_token_id", "bos_token_id") if config.get(key) is not None),
            tokenizer.start,
        )
    return Habits(start, int(end), int(end if pad is None or pad < 0 else pad))
