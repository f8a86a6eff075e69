"""The Hugging Face hub: datasets by name, for machines with a network."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from functools import cache
from types import ModuleType

from glassformer.data.files import Row, look_up
from glassformer.data.report import Report
from glassformer.errors import DataError
from glassformer.recipe import HuggingFaceSource


def split_name(source: HuggingFaceSource, names: tuple[str, ...]) -> str | None:
    """What the dataset calls a split that has one of these names; None if it has no such split."""
    try:
        there = _split_names(source.name, source.subset, source.revision)
    except Exception as error:  # whatever the library and the network raise
        raise error if isinstance(error, DataError) else _away(source, error) from None
    return next((name for name in names if name in there), None)


@cache
def _split_names(name: str, subset: str | None, revision: str | None) -> list[str]:
    return list(_library().get_dataset_split_names(name, subset, revision=revision))


def rows(source: HuggingFaceSource, names: tuple[str, ...], report: Report, strict: bool) -> Iterator[Row]:
    """The examples of a split, one after another, without keeping them."""
    library, split = _library(), split_name(source, names)
    try:
        examples = iter(
            library.load_dataset(source.name, source.subset, split=split, revision=source.revision, streaming=True)
        )
        for number, example in enumerate(examples, 1):
            sides = [look_up(example, field) for field in source.fields]
            place = f"{source.name}/{split}:{number}"
            missing = [field for field, side in zip(source.fields, sides, strict=True) if not isinstance(side, str)]
            if missing:
                report.add_bad("missing field", place, f"has no text under {missing[0]}", strict)
            else:
                yield sides[0], sides[1], place
    except Exception as error:  # whatever the library and the network raise
        raise error if isinstance(error, DataError) else _away(source, error) from None


def _library() -> ModuleType:
    try:
        return importlib.import_module("datasets")
    except ImportError:
        raise DataError("source.kind huggingface needs the library datasets: pip install 'glassformer[hub]'") from None


def _away(source: HuggingFaceSource, error: Exception) -> DataError:
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return DataError(f"the dataset {source.name!r} cannot be had from the Hugging Face hub: {reason}")
