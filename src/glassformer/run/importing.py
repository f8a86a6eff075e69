"""Imported runs: checkpoints from elsewhere, ready for use.

The folder is a checkpoint in Hugging Face's layout and a run folder at once:

config.json, model.safetensors     the checkpoint
tokenizer.json                     or source.tokenizer.json and target.tokenizer.json
import.json                        where it is from
habits.json                        its special tokens; what began with a checkpoint and was trained on has it too
generation_config.json, …          what came along and only `transformers` reads
"""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import nn

from glassformer.errors import InputError, RunError
from glassformer.models import DecoderOnly, EncoderDecoder
from glassformer.pretrained import files, load, save
from glassformer.pretrained.adapter import made_of
from glassformer.run.folder import JOINT, SEPARATE, check_free, write_text
from glassformer.text import Habits, Tokenizer, framed_habits

IMPORT, HABITS, GENERATION = "import.json", "habits.json", "generation_config.json"
ALONG = (GENERATION, "special_tokens_map.json", "tokenizer_config.json")
SEEING = "preprocessor_config.json"  # how images are shown to a model
BESIDE = (files.INDEX, IMPORT, HABITS, *ALONG, *JOINT, *SEPARATE, SEEING)


def import_checkpoint(source: str | Path, folder: Path, force: bool = False) -> nn.Module:
    """Make a run folder of a checkpoint that writes text or guesses hidden words: a folder, or a name on the hub.

    Only with `force` is something written over.
    """
    check_free(folder, force)
    found = files.find(source)
    if found.resolve() == folder.resolve():
        raise RunError(f"{folder} is the checkpoint itself: choose another folder")
    config, model = files.read_config(found), load(found)
    writes = isinstance(model, DecoderOnly | EncoderDecoder)
    if not writes and not guesses_words(model):
        raise InputError(
            f"{source} neither writes nor fills gaps: use it from Python, with glassformer.pretrained.load"
        )
    tokenizers = read_tokenizers(found, config)
    vocabulary = made_of(model).arguments["vocabulary"]
    for tokenizer in tokenizers:
        if tokenizer.size > vocabulary:
            raise InputError(
                f"{source}: its tokenizer has {tokenizer.size} tokens, but its model only {vocabulary}: "
                "they do not belong together"
            )
    habits = checkpoint_habits(found, tokenizers, isinstance(model, EncoderDecoder)) if writes else None
    if habits is None:
        _ = tokenizers[0].mask  # complains where it has none
    save_alone(model, folder)
    write_tokenizers(tokenizers, found, folder)
    if habits is not None:
        write_habits(folder, habits)
    write_text(folder / IMPORT, json.dumps({"format": 2, "source": str(source)}, indent=2) + "\n")
    return model


def guesses_words(model: nn.Module) -> bool:
    """Whether a model guesses the words behind a mask."""
    return made_of(model).arguments.get("answer") == "words"


def save_alone(model: nn.Module, folder: Path) -> None:
    """Write a checkpoint, and take away what one before has left in the folder, so that no two are mixed."""
    save(model, folder)
    for name in BESIDE:
        (folder / name).unlink(missing_ok=True)


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


def write_habits(folder: Path, habits: Habits) -> None:
    """Let a run folder remember the special tokens of its checkpoint."""
    write_text(folder / HABITS, json.dumps(asdict(habits), indent=2) + "\n")


def read_habits(folder: Path) -> Habits | None:
    """The special tokens of a run that began with a checkpoint; None: it did not."""
    path = folder / HABITS
    if not path.exists():
        if (folder / IMPORT).exists():
            raise RunError(f"{folder} has lost its {HABITS}, or is from before there was one: import it again")
        return None
    try:
        return Habits(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise RunError(f"{path} is damaged: {error}") from None


def checkpoint_habits(folder: Path, tokenizers: tuple[Tokenizer, Tokenizer], translates: bool = True) -> Habits:
    """The special tokens of a checkpoint: as its files number them, and where they are silent its tokenizer."""
    config = {**files.read_config(folder), **_generation(folder)}
    told = {key: value for key, value in config.items() if value is not None}
    try:
        return _habits(told, tokenizers, translates)
    except (TypeError, ValueError) as error:
        raise InputError(f"{folder}: its config.json does not number its special tokens: {error}") from None


def _generation(folder: Path) -> dict[str, Any]:
    """What newer checkpoints say of generation in a file of its own."""
    try:
        told = json.loads((folder / GENERATION).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise InputError(f"{folder / GENERATION} cannot be read: {error}") from None
    return told if isinstance(told, dict) else {}


def _habits(config: dict[str, Any], tokenizers: tuple[Tokenizer, Tokenizer], translates: bool) -> Habits:
    source, target = tokenizers
    ends = config.get("eos_token_id", target.end)
    end = int(ends[0] if isinstance(ends, list) else ends)
    pad = int(config.get("pad_token_id", end))
    keys = ("decoder_start_token_id", "bos_token_id", "pad_token_id") if translates else ("bos_token_id",)
    start = int(next((config[key] for key in keys if key in config), target.start))
    never = [int(words[0]) for words in config.get("bad_words_ids", []) if len(words) == 1]
    return framed_habits(start, end, end if pad < 0 else pad, never, source, target)
