"""A source: where examples come from, in one class. It yields them, and knows its splits, files and fingerprint."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field

from glassformer.data.examples import Columns
from glassformer.data.report import Report
from glassformer.recipe.values import Section, register
from glassformer.registry import SOURCES

Split = Literal["train", "valid", "test"]
SPLITS: tuple[Split, ...] = ("train", "valid", "test")
ALIASES: dict[Split, tuple[str, ...]] = {  # what a split is called in folders and datasets
    "train": ("train",),
    "valid": ("valid", "val", "dev", "validation"),
    "test": ("test",),
}
Found = tuple[tuple[Any, ...], str]  # an example, and the place where it stands: "train.tsv:12"


def unpacked(path: Path) -> Path:
    """The name of a file without the ending of a packed one."""
    return path.with_suffix("") if path.suffix.lower() in (".gz", ".xz") else path


class Source(Section):
    """What a recipe says of a source, and what the source does. Paths start from the folder `base`.

    A subclass is registered under each value of its field `kind`, a Literal.
    """

    gives: ClassVar[type] = Columns  # the type of its examples
    unit: ClassVar[str] = "rows"  # what a report calls them
    makes_splits: ClassVar[bool] = False  # whether it always has valid and test, too
    parses: ClassVar[bool] = False  # whether it can tell what a text of its says: see `meaning`
    kind: str

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        """Register the class."""
        super().__pydantic_init_subclass__(**options)
        register(SOURCES, cls)

    @classmethod
    def recognised(cls, paths: Sequence[Path]) -> dict[str, Any] | None:
        """The keys of [source], but for its kind, that read what a user has named; None: it is not for that."""
        return None

    def splits(self, base: Path) -> tuple[Split, ...]:
        """The splits that it has; the others are split off from train."""
        return SPLITS if self.makes_splits else ("train",)

    def read(self, split: Split, base: Path, report: Report) -> Iterator[Found]:
        """The examples of one of its splits, in order; bad rows are counted in the report."""
        raise NotImplementedError

    def files(self, base: Path) -> list[Path]:
        """The files whose contents decide what it yields."""
        return []

    def versions(self, base: Path) -> dict[str, Any]:
        """What else decides that: versions of libraries, sizes and times of files."""
        return {}

    def meaning(self, text: str) -> Hashable | None:
        """What a text says, where the source can tell: texts that say the same are equally right. None: nothing."""
        return None

    def columns_read(self) -> int:
        """How many texts an example has: as many as `columns` or `fields` names."""
        return len(getattr(self, "columns", getattr(self, "fields", ("source", "target"))))


class FileSource(Source):
    """A source of one file per split."""

    endings: ClassVar[tuple[str, ...]] = ()  # of files that it is for, if they are named without a kind

    train: str = Field(description="the training file (plain, .gz or .xz)")
    valid: str | None = Field(None, description="the validation file; missing: split off by content hash")
    test: str | None = Field(None, description="the test file; missing: split off by content hash")

    @classmethod
    def recognised(cls, paths: Sequence[Path]) -> dict[str, Any] | None:
        """One file with the right ending, packed or not."""
        fits = len(paths) == 1 and paths[0].is_file() and unpacked(paths[0]).suffix.lower() in cls.endings
        return {"train": str(paths[0])} if fits else None

    def splits(self, base: Path) -> tuple[Split, ...]:
        """Those that have a file."""
        return tuple(split for split in SPLITS if getattr(self, split) is not None)

    def files(self, base: Path) -> list[Path]:
        """All of them."""
        names = [getattr(self, split) for split in self.splits(base)]
        return [base / name for each in names for name in ((each,) if isinstance(each, str) else each)]
