"""Folders in the layout of Hugging Face: a run is exported as one, and a checkpoint from elsewhere is imported.

config.json, model.safetensors     the checkpoint
tokenizer.json                     or source.tokenizer.json and target.tokenizer.json
tokenizer_config.json              what `transformers` must know of the tokenizer beside its file
preprocessor_config.json           of a model of images: how they are resized and scaled
import.json, special_tokens.json    of an import, which is a run folder too: where it is from, its special tokens
task.json                           of an import: options of its task that its other files have decided
generation_config.json              how it writes
tokenizer_config.json, …            files that only `transformers` reads, copied from an import to its export

This file knows no tasks: a run describes itself as `Exported`, and the caller decides which task suits an import.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from torch import nn

from glassformer.errors import InputError, RunError, TrainingError
from glassformer.interop.checkpoints import CONFIG, INDEX, WRITING, find, load, read_config, read_object, save
from glassformer.interop.generation import GENERATION, checkpoint_special_tokens, decode_keys, keep_generation
from glassformer.interop.sentence_transformers import LIMITS, MODULES, TOKENIZER_CONFIG
from glassformer.interop.special_tokens import SPECIAL_TOKENS, write_special_tokens
from glassformer.models import EncoderDecoder
from glassformer.models.family import blueprint_of
from glassformer.text import SpecialTokens, Tokenizer
from glassformer.writing import CHECKSUMS, IMPORT, check_free, filling, write_checksums, write_json, write_text

JOINT, SEPARATE = ("tokenizer.json",), ("source.tokenizer.json", "target.tokenizer.json")
PREPROCESSOR = "preprocessor_config.json"
COPIED = (GENERATION, "special_tokens_map.json", TOKENIZER_CONFIG, PREPROCESSOR)
LETTERS = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}
KEPT = "task.json"  # the options that the files of an import have decided, by section
BESIDE_WEIGHTS = (INDEX, CHECKSUMS, IMPORT, SPECIAL_TOKENS, KEPT, MODULES, LIMITS, *COPIED, *JOINT, *SEPARATE)


@dataclass(frozen=True)
class Exported:
    """What a run says about itself when it is exported.

    `opens_with` names the classes of `transformers` that open it. `notes` are keys for config.json. In the file of its
    tokenizer, `frame` says which special tokens to add to a text: none, the start, or start and end; `normalise` and
    `strip` are the recipe's of these names. In the settings of the tokenizer, an encoder (`encodes`) has the tokens cls
    and sep instead of bos and eos, and segments; with `splits_special`, "<end>" in a text is only text; with `mask`,
    the mask token is named. `preprocessor` holds the settings for images, `generation` those
    of writing, `files` the contents of further JSON files.
    """

    opens_with: str
    notes: Mapping[str, Any] = field(default_factory=dict)
    frame: Literal["none", "start", "both"] = "none"
    encodes: bool = False
    splits_special: bool = True
    mask: bool = False
    preprocessor: Mapping[str, Any] | None = None
    generation: Mapping[str, Any] | None = None
    files: Mapping[str, Any] = field(default_factory=dict)
    max_length: int = 0
    normalise: str = "none"
    strip: bool = False


def export(
    model: nn.Module,
    tokenizers: Sequence[Tokenizer],
    exported: Exported,
    folder: Path,
    origin: Path | None = None,
    force: bool = False,
) -> str:
    """Write a model with its tokenizers: none, one, or those of source and target. Returns what opens the folder.

    `origin` is the folder of an imported checkpoint: its tokenizers are written as they were read, and its further
    files are copied. Only with `force` is something written over.
    """
    check_free(folder, force)
    if origin is not None and origin.resolve() == folder.resolve():
        raise RunError(f"{folder} is the run itself: choose another folder")
    notes = dict(exported.notes)
    if origin is None and tokenizers:
        notes.setdefault("pad_token_id", tokenizers[0].pad)
    if origin is None and len(tokenizers) == 1:
        framed = tokenizers[0].normalising(exported.normalise, exported.strip)  # its file does all that the run does
        if exported.frame != "none":
            framed.add_frame(ending=exported.frame == "both")
        tokenizers = [framed]
    with _filling(folder, CONFIG) as new:
        save(model, new, notes)
        if exported.preprocessor is not None:
            write_json(new / PREPROCESSOR, exported.preprocessor)
        if exported.generation is not None and origin is None:
            write_json(new / GENERATION, exported.generation)
        for name, contents in exported.files.items():
            (new / name).parent.mkdir(exist_ok=True)
            write_text(new / name, json.dumps(contents, indent=2) + "\n")
        if origin is not None:
            _copy(origin, new)
        write_tokenizers(tokenizers, new)
        if len(tokenizers) == 1 and not (new / TOKENIZER_CONFIG).is_file():
            write_json(new / TOKENIZER_CONFIG, _tokenizer_config(tokenizers[0], exported))
    return exported.opens_with


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that is being imported: where it is from, the folder of its files, its model."""

    source: str
    folder: Path
    model: nn.Module

    @cached_property
    def tokenizers(self) -> tuple[Tokenizer, ...]:
        """Its tokenizers, of source and target; none, if its model reads images and writes nothing."""
        vocabulary = blueprint_of(self.model).arguments.get("vocabulary")
        if vocabulary is None:
            return ()
        tokenizers = read_tokenizers(self.folder)
        _check_letters(self.folder, tokenizers[0])
        for tokenizer in tokenizers:
            if tokenizer.size > vocabulary:
                raise InputError(
                    f"{self.source}: its tokenizer has {tokenizer.size} tokens, but its model only {vocabulary}: "
                    "they do not belong together"
                )
        return tokenizers

    def special_tokens(self) -> SpecialTokens:
        """Its special tokens, all of which the model must know; generation settings that cannot be used are refused."""
        encoder_decoder = isinstance(self.model, EncoderDecoder)
        decode_keys(self.folder, encoder_decoder)
        return checkpoint_special_tokens(self.folder, self.tokenizers, encoder_decoder)


Chosen = tuple[SpecialTokens | None, Mapping[str, Mapping[str, Any]]]


def import_checkpoint(
    source: str | Path, folder: Path, force: bool, choose: Callable[[Checkpoint], Chosen]
) -> Checkpoint:
    """Make a run folder of a checkpoint: a folder, or a name on the hub.

    Before anything is written, `choose` gets the checkpoint and raises an error where no task suits it; it returns the
    special tokens to keep, or None, and options to keep. Only with `force` is something written over.
    """
    check_free(folder, force)
    found = find(source)
    if found.resolve() == folder.resolve():
        raise RunError(f"{folder} is the checkpoint itself: choose another folder")
    checkpoint = Checkpoint(str(source), found, load(found))
    (special, kept), tokenizers = choose(checkpoint), list(dict.fromkeys(checkpoint.tokenizers))
    with _filling(folder, IMPORT) as new:
        save(checkpoint.model, new, {})
        write_tokenizers(tokenizers, new)
        if special is not None:
            write_special_tokens(new, special)
        if any(kept.values()):
            write_json(new / KEPT, kept)
        write_checksums(new, sorted(each.name for each in new.iterdir()))
        _copy(found, new)
        if special is not None:
            keep_generation(found, new)
        write_json(new / IMPORT, {"format": 2, "source": str(source)})
    return checkpoint


def read_tokenizers(folder: Path) -> tuple[Tokenizer, Tokenizer]:
    """The tokenizers of a checkpoint or run, of source and target: the same one where they share a vocabulary."""
    if all((folder / name).is_file() for name in SEPARATE):
        source, target = (Tokenizer.load(folder / name, complete=False) for name in SEPARATE)
        return source, target
    if (folder / JOINT[0]).is_file():
        joint = Tokenizer.load(folder / JOINT[0], complete=False)
        return joint, joint
    config = read_config(folder)
    if "grapheme_chars" in config and "phoneme_chars" in config:  # spelling to sound: a letter's id is its place
        return Tokenizer.of_letters(config["grapheme_chars"]), Tokenizer.of_letters(config["phoneme_chars"])
    raise InputError(
        f"{folder} has no tokenizer.json: with transformers, load its tokenizer and save_pretrained it into that folder"
    )


def _check_letters(folder: Path, tokenizer: Tokenizer) -> None:
    """Refuse a BERT's tokenizer whose two files disagree about letters: `transformers` believes the settings."""
    path = folder / TOKENIZER_CONFIG
    config = read_object(path, "") if path.is_file() else {}
    steps = json.loads(tokenizer.to_json())["normalizer"] or {}
    if config.get("tokenizer_class") not in ("BertTokenizer", "BertTokenizerFast") or "lowercase" not in steps:
        return
    for theirs, ours in LETTERS.items():
        if theirs in config and config[theirs] != steps.get(ours):
            other = f"but in tokenizer.json {ours} is {steps.get(ours)!r}"
            raise InputError(f"{path}: {theirs} is {config[theirs]!r}, {other}: make them agree")


@contextmanager
def _filling(folder: Path, last: str) -> Iterator[Path]:
    """A new folder for a checkpoint, which gets its name when everything is written; or its place in an older one."""
    try:
        with filling(folder, last, BESIDE_WEIGHTS) as new:
            yield new
    except (OSError, TrainingError) as error:
        reason = getattr(error, "strerror", None) or str(error).partition(WRITING)[2]
        raise TrainingError(f"{folder}{WRITING}{reason}") from None


def write_tokenizers(tokenizers: Sequence[Tokenizer], folder: Path) -> None:
    """Write one tokenizer, or those of source and target."""
    names = SEPARATE if len(tokenizers) == 2 else JOINT
    for name, tokenizer in zip(names, tokenizers, strict=False):
        tokenizer.save(folder / name)


def _copy(origin: Path, folder: Path) -> None:
    for name in COPIED:
        if (origin / name).is_file():
            shutil.copyfile(origin / name, folder / name)


def _tokenizer_config(tokenizer: Tokenizer, exported: Exported) -> dict[str, Any]:
    names = tokenizer.spellings()
    start, end = ("cls", "sep") if exported.encodes else ("bos", "eos")
    mask = {"mask_token": tokenizer.tokens([tokenizer.mask])[0]} if exported.mask else {}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": names["pad"],
        f"{start}_token": names["start"],
        f"{end}_token": names["end"],
        "unk_token": names["unknown"],
        "model_max_length": exported.max_length,
        "model_input_names": ["input_ids", *(["token_type_ids"] if exported.encodes else []), "attention_mask"],
        "split_special_tokens": exported.splits_special,
        **mask,
    }
