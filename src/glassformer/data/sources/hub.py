"""The Hugging Face hub: datasets by name, for machines with a network."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Literal

from pydantic import Field

from glassformer.data.report import Report
from glassformer.data.source import ALIASES, SPLITS, Found, Source, Split
from glassformer.data.sources.files import fields_of
from glassformer.errors import DataError


class HuggingFaceSource(Source):
    """A dataset by its name on the Hugging Face hub. Needs a network and the extra `hub`."""

    kind: Literal["huggingface"]
    name: str = Field(description="the dataset's name, such as wmt14")
    subset: str | None = Field(None, description="its configuration, such as de-en")
    revision: str | None = Field(None, description="a commit or tag of the dataset, to get the same data always")
    fields: tuple[str, str] = Field(description="source and target, such as translation.en and translation.de")

    def splits(self, base: Path) -> tuple[Split, ...]:
        """Those of the dataset, by their names."""
        return tuple(split for split in SPLITS if self._name_of(split) is not None)

    def read(self, split: Split, base: Path, report: Report) -> Iterator[Found]:
        """The rows of a split, one after another; they are not kept."""
        name = self._name_of(split)
        with _reached(self.name):
            options = {"split": name, "revision": self.revision, "streaming": True}
            for number, row in enumerate(_library().load_dataset(self.name, self.subset, **options), 1):
                yield from fields_of(row, self.fields, f"{self.name}/{name}:{number}", report)

    def _name_of(self, split: Split) -> str | None:
        """What the dataset calls a split; None if it has no such split."""
        with _reached(self.name):
            names = _split_names(self.name, self.subset, self.revision)
        return next((name for name in ALIASES[split] if name in names), None)


@cache
def _split_names(name: str, subset: str | None, revision: str | None) -> list[str]:
    return list(_library().get_dataset_split_names(name, subset, revision=revision))


def _library() -> ModuleType:
    try:
        return importlib.import_module("datasets")
    except ImportError:
        raise DataError("source.kind huggingface needs the library datasets: pip install 'glassformer[hub]'") from None


@contextmanager
def _reached(name: str) -> Iterator[None]:
    """Turns every error of the library and of the network into one sentence."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise DataError(f"the dataset {name!r} cannot be loaded from the Hugging Face hub: {reason}") from None
