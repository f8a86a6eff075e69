"""Assets: what a model needs beside its weights to read and write."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from glassformer.text import SpecialTokens, Tokenizer


@dataclass(frozen=True)
class Assets:
    """The tokenizers of source and target (one object if they share a vocabulary), labels, special tokens.

    A task that reads no text has no tokenizer. `labels` stand in the order of their numbers. `special_tokens` are those
    of a checkpoint that writes; None: those of our own models.
    """

    tokenizers: tuple[Tokenizer, ...] = ()
    labels: list[str] = field(default_factory=list)
    special_tokens: SpecialTokens | None = None


def read_tokenizers(folder: Path, complete: bool = True) -> tuple[Tokenizer, ...]:
    """The tokenizers of source and target in a prepared corpus; none if it has no text."""
    paths = [folder / name for name in ("source.json", "target.json") if (folder / name).exists()]
    found = tuple(Tokenizer.load(path, complete) for path in paths)
    return found * 2 if len(found) == 1 else found
