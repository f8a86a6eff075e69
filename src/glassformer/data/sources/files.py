"""Sources of texts side by side: a table, one object per line, two aligned files, or a folder of such files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from glassformer.data.examples import Columns
from glassformer.data.report import Report
from glassformer.data.source import ALIASES, SPLITS, FileSource, Found, Source, Split, unpacked
from glassformer.data.textfiles import counted, first_lines, lines, look_up, texts
from glassformer.errors import DataError
from glassformer.files import check_folder
from glassformer.recipe.values import Place, Switch

PACKED = ("", ".gz", ".xz")
LOOKED_AT, MOSTLY = 1_000, 0.9  # lines of a file, to see what it is; and how many of them must be like a table's
MORE_LINES = 100_000  # that a file may have than the other before nobody counts them
LABELLED = 10  # times that each value of a column occurs, if its values are labels
COLUMN_NAMES = {
    *("source", "target", "src", "tgt", "trg", "input", "output", "text", "texts", "label", "labels", "class", "tag"),
    *("sentence", "sentence1", "sentence2", "question", "answer", "words", "tags", "en", "de", "english", "german"),
}


class TsvSource(FileSource):
    """A table of tab-separated columns, one example per line."""

    endings = (".tsv", ".tab", ".txt")
    kind: Literal["tsv"]
    columns: Annotated[tuple[Place, ...], Field(min_length=2, max_length=3)] = Field(
        (0, 1), description="the columns of source and target, or of two texts and a label; the first column is 0"
    )
    header: Switch = Field(False, description="the first line names the columns")

    @classmethod
    def recognised(cls, paths: Sequence[Path]) -> dict[str, Any] | None:
        """A table, whose first line may name the columns; one of a few values, such as a label, is read last."""
        found = super().recognised(paths)
        rows = [] if found is None else [line.split("\t") for line in first_lines(paths[0], LOOKED_AT)]
        if found is None or not rows or sum(len(row) > 1 for row in rows) < MOSTLY * len(rows):
            return None
        header = all(cell.strip().lower() in COLUMN_NAMES for cell in rows[0][:2])
        body = [row for row in rows[int(header) :] if len(row) > 1]
        values = [len({row[column] for row in body}) for column in (0, 1)]
        label_first = len(body) >= LABELLED and values[0] <= len(body) / LABELLED and values[0] < values[1]
        return found | ({"header": True} if header else {}) | ({"columns": [1, 0]} if label_first else {})

    def read(self, split: Split, base: Path, report: Report) -> Iterator[Found]:
        """The chosen columns of each line."""
        name: str = getattr(self, split)
        least = max(self.columns) + 1
        for place, text in texts(base / name, name, report, skip=int(self.header)):
            cells = text.split("\t")
            if len(cells) < least:
                what = f"{len(cells)} column{'s' * (len(cells) > 1)}, at least {least} expected"
                report.add_bad("wrong column count", place, what)
            else:
                yield Columns(tuple(cells[column] for column in self.columns)), place


class AlignedSource(FileSource):
    """Two files: line n of the second is the translation of line n of the first."""

    kind: Literal["aligned"]
    train: tuple[str, str] = Field(description="the training files: source, target")  # type: ignore[assignment]
    valid: tuple[str, str] | None = Field(None, description="the validation files")  # type: ignore[assignment]
    test: tuple[str, str] | None = Field(None, description="the test files")  # type: ignore[assignment]

    @classmethod
    def recognised(cls, paths: Sequence[Path]) -> dict[str, Any] | None:
        """Two files."""
        return {"train": [*map(str, paths)]} if len(paths) == 2 and all(path.is_file() for path in paths) else None

    def read(self, split: Split, base: Path, report: Report) -> Iterator[Found]:
        """Each line of the first file with its line of the second; DataError if one file has more lines."""
        names: tuple[str, str] = getattr(self, split)
        counts = [0, 0]
        for pair in zip_longest(*(lines(base / name, report) for name in names)):
            counts = [count + (line is not None) for count, line in zip(counts, pair, strict=True)]
            if None in pair:
                if abs(counts[0] - counts[1]) > MORE_LINES:
                    break
                continue  # to count both
            places = [f"{name}:{counts[0]}" for name in names]
            if all(counted(line, place, report) is not None for line, place in zip(pair, places, strict=True)):
                yield Columns(tuple(map(str, pair))), places[0]
        if counts[0] != counts[1]:
            shown = [f"{count:,}" if count <= min(counts) + MORE_LINES else "many more" for count in counts]
            many = f"{names[0]} has {shown[0]} lines but {names[1]} has {shown[1]}"
            raise DataError(f"{many}: they are not aligned")


class JsonlSource(FileSource):
    """One JSON object per line."""

    endings = (".jsonl", ".ndjson")
    kind: Literal["jsonl"]
    fields: Annotated[tuple[str, ...], Field(min_length=2, max_length=3)] = Field(
        ("source", "target"), description="the names of source and target, or of two texts and a label"
    )

    @classmethod
    def recognised(cls, paths: Sequence[Path]) -> dict[str, Any] | None:
        """Objects with two texts or a text and a number, which are the fields."""
        found = super().recognised(paths)
        try:
            row = None if found is None else json.loads(first_lines(paths[0], 1)[0])
        except (ValueError, RecursionError, IndexError):
            row = None
        names = [name for name, value in row.items() if isinstance(value, str | int)] if isinstance(row, dict) else []
        return None if found is None or len(names) < 2 else found | {"fields": names[:2]}

    def read(self, split: Split, base: Path, report: Report) -> Iterator[Found]:
        """The chosen fields of each object."""
        name: str = getattr(self, split)
        for place, text in texts(base / name, name, report):
            try:
                row = json.loads(text)
            except (ValueError, RecursionError):  # ValueError: also a number of too many digits
                report.add_bad("not JSON", place, "is not a JSON object")
                continue
            yield from fields_of(row, self.fields, place, report)


class FolderSource(Source):
    """A folder of train, valid and test: `train.en` and `train.de`, or `train.tsv`, or `train.jsonl`; also .gz, .xz."""

    kind: Literal["folder"]
    path: str = Field(description="the folder")
    languages: tuple[str, str] | None = Field(None, description="the endings of aligned files: source, target")
    fields: tuple[str, str] = Field(("source", "target"), description="the names of source and target in JSONL")

    @classmethod
    def recognised(cls, paths: Sequence[Path]) -> dict[str, Any] | None:
        """A folder with a file for training, or two that are aligned."""
        if len(paths) != 1 or not paths[0].is_dir():
            return None
        names = {unpacked(path).suffix[1:] for path in paths[0].iterdir() if unpacked(path).stem in ALIASES["train"]}
        if names & {"tsv", "jsonl"}:
            return {"path": str(paths[0])}
        return {"path": str(paths[0]), "languages": sorted(names)} if len(names) == 2 else None

    def splits(self, base: Path) -> tuple[Split, ...]:
        """Those that have a file."""
        return self._found(base).splits(base)

    def read(self, split: Split, base: Path, report: Report) -> Iterator[Found]:
        """The examples of the folder's file for this split."""
        return self._found(base).read(split, base, report)

    def files(self, base: Path) -> list[Path]:
        """The folder's files for train, valid and test."""
        return self._found(base).files(base)

    def _found(self, base: Path) -> FileSource:
        """The source of the files that the folder holds."""
        folder = check_folder(base / self.path)
        if self.languages:
            return self._aligned(base, *self.languages)
        if tables := self._names(base, "tsv"):
            return TsvSource.model_validate({"kind": "tsv", **tables})
        if objects := self._names(base, "jsonl"):
            return JsonlSource.model_validate({"kind": "jsonl", "fields": self.fields, **objects})
        hint = "for train.en and train.de, set languages = ['en', 'de']"
        raise DataError(f"{folder}: holds no train.tsv or train.jsonl ({hint}), plain, .gz or .xz")

    def _aligned(self, base: Path, source: str, target: str) -> FileSource:
        folder, left, right = base / self.path, self._names(base, source), self._names(base, target)
        if not (left and right):
            raise DataError(f"{folder}: holds no train.{source} and train.{target}, plain, .gz or .xz")
        for split in SPLITS:
            if (split in left) != (split in right):
                only = left.get(split, right.get(split))
                raise DataError(f"{folder}: holds {only} but not its other side for {split}")
        both = {split: (left[split], right[split]) for split in left}
        return AlignedSource.model_validate({"kind": "aligned", **both})

    def _names(self, base: Path, ending: str) -> dict[str, str]:
        """The file of each split that has one with this ending; nothing if train has none."""
        found: dict[str, str] = {}
        if Path(ending).name != ending:
            raise DataError(f"source.languages holds {ending!r}: it names the end of a file, such as 'en'")
        for split in SPLITS:
            names = (f"{self.path}/{name}.{ending}{packed}" for name in ALIASES[split] for packed in PACKED)
            if name := next((name for name in names if (base / name).is_file()), None):
                found[split] = name
        return found if "train" in found else {}


def fields_of(row: Any, fields: Sequence[str], place: str, report: Report) -> Iterator[Found]:
    """The example in an object: its fields, as texts; nothing, and a bad row in the report, if it lacks one."""
    cells = [_joined(look_up(row, field)) for field in fields]
    missing = [field for field, cell in zip(fields, cells, strict=True) if not isinstance(cell, str | int)]
    if missing:
        report.add_bad("missing field", place, f"has no text under {missing[0]}")
    else:
        yield Columns(tuple(map(str, cells))), place


def _joined(value: Any) -> Any:
    """A list of sentences as one text; any other value as it is."""
    sentences = isinstance(value, list) and all(isinstance(each, str) for each in value)
    return " ".join(value) if sentences else value
