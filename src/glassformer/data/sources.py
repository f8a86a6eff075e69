"""Sources: where pairs come from. Each kind of source in a recipe has its reader here, and nowhere else."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Literal

from glassformer.data import debian, documents, generators, hub, labelled, memories
from glassformer.data.files import Row, aligned_rows, object_rows, table_rows
from glassformer.data.report import Pair, Report
from glassformer.data.squad import question_rows
from glassformer.errors import DataError
from glassformer.recipe import (
    AlignedSource,
    DatesSource,
    DebianSource,
    DigitsSource,
    FilesSource,
    FolderSource,
    GrammarSource,
    HuggingFaceSource,
    ImageFolderSource,
    JsonlSource,
    LabelledFolderSource,
    PoSource,
    PythonSource,
    Source,
    SquadSource,
    TextSource,
    TmxSource,
    TopicsSource,
    ToySource,
    TsvSource,
)

MadeSource = DatesSource | GrammarSource | ToySource  # of examples made here
DocumentSource = TextSource | FilesSource | PythonSource
Split = Literal["train", "valid", "test"]
SPLITS: tuple[Split, ...] = ("train", "valid", "test")
ALIASES: dict[Split, tuple[str, ...]] = {
    "train": ("train",),
    "valid": ("valid", "val", "dev", "validation"),
    "test": ("test",),
}
PACKED = ("", ".gz", ".xz")


def read_pairs(source: Source, split: Split, base: Path, report: Report, strict: bool) -> Iterator[Pair]:
    """The pairs of a source's own split, in order; `base` is the folder that its paths start from.

    Bad rows are counted in the report, or stop everything in strict mode.
    """
    source = found(source, base)
    if split not in own_splits(source, base):
        raise DataError(f"the source has no {split} of its own: {split} pairs are split off from train")
    for left, right, place in _rows(source, split, base, report, strict):
        alone = isinstance(source, DocumentSource)
        if not left.strip() or not (right.strip() or alone):
            report.add_bad("empty side", place, f"the {'target' if left.strip() else 'source'} is empty", strict)
        elif not _is_text(left) or not _is_text(right):
            report.add_bad("invalid Unicode", place, "holds half a surrogate pair, which is no character", strict)
        else:
            report.read += 1
            yield Pair(left, right, place)


def own_splits(source: Source, base: Path) -> tuple[Split, ...]:
    """The splits that a source has of its own; the others are split off from train."""
    source = found(source, base)
    if isinstance(source, MadeSource):
        return SPLITS
    if isinstance(source, HuggingFaceSource):
        return tuple(split for split in SPLITS if hub.split_name(source, ALIASES[split]) is not None)
    if isinstance(source, DebianSource | TopicsSource | FilesSource | PythonSource | DigitsSource):
        return ("train",)
    if isinstance(source, LabelledFolderSource | ImageFolderSource):
        there = labelled.split_folders(base / source.path, ALIASES)
        return tuple(split for split in SPLITS if split in there)
    return tuple(split for split in SPLITS if getattr(source, split) is not None)


def own_files(source: Source, base: Path) -> list[Path]:
    """The files that a source reads."""
    source = found(source, base)
    if isinstance(source, DebianSource):
        return list(debian.files(source.language))
    if isinstance(source, LabelledFolderSource):
        folders = labelled.split_folders(base / source.path, ALIASES).values()
        return [path for folder in folders for path, _ in labelled.labelled_files(folder, labelled.TEXTS)]
    if isinstance(source, FilesSource):
        return documents.matching(base / source.path, source.pattern)
    if isinstance(source, MadeSource | HuggingFaceSource | FolderSource | TopicsSource | PythonSource):
        return []
    if isinstance(source, DigitsSource | ImageFolderSource):  # which is known by the times and sizes of its files
        return []
    names = [getattr(source, split) for split in SPLITS]
    flat = [name for each in names if each for name in ((each,) if isinstance(each, str) else each)]
    return [base / name for name in flat]


def found(source: Source, base: Path) -> Source:
    """A folder as the files in it; any other source as it is."""
    if not isinstance(source, FolderSource):
        return source
    folder = base / source.path
    if not folder.is_dir():
        raise DataError(f"{folder}: is not a folder")
    if source.languages:
        both = [{split: _file(base, source.path, split, language) for split in SPLITS} for language in source.languages]
        pairs = {split: (both[0][split], both[1][split]) for split in SPLITS}
        wanted = " and ".join(f"train.{language}" for language in source.languages)
        _need(folder, all(pairs["train"]), wanted)
        for split, (left, right) in pairs.items():
            if (left is None) != (right is None):
                raise DataError(f"{folder}: holds {left or right} but not its other side for {split}")
        return AlignedSource.model_validate({"kind": "aligned", **{s: p for s, p in pairs.items() if all(p)}})
    for ending, make in (("tsv", TsvSource), ("jsonl", JsonlSource)):
        files = {split: _file(base, source.path, split, ending) for split in SPLITS}
        if files["train"]:
            more = {"fields": source.fields} if ending == "jsonl" else {}
            return make.model_validate({"kind": ending, **files, **more})
    _need(folder, False, "train.tsv or train.jsonl (for train.en and train.de, say languages = ['en', 'de'])")
    raise AssertionError


def _need(folder: Path, there: bool, what: str) -> None:
    if not there:
        raise DataError(f"{folder}: holds no {what}, plain, .gz or .xz")


def _file(base: Path, folder: str, split: Split, ending: str) -> str | None:
    names = [f"{folder}/{name}.{ending}{packed}" for name in ALIASES[split] for packed in PACKED]
    return next((name for name in names if (base / name).is_file()), None)


def _rows(source: Source, split: Split, base: Path, report: Report, strict: bool) -> Iterator[Row]:
    if isinstance(source, DatesSource):
        return generators.dates(source, split)
    if isinstance(source, ToySource):
        return generators.toys(source, split)
    if isinstance(source, GrammarSource):
        return generators.sentences(source, split)
    if isinstance(source, HuggingFaceSource):
        return hub.rows(source, ALIASES[split], report, strict)
    if isinstance(source, DebianSource):
        return debian.rows(source.language)
    if isinstance(source, TopicsSource):
        return labelled.text_rows(labelled.news(), report, strict)
    if isinstance(source, LabelledFolderSource):
        return labelled.text_rows(labelled.split_folders(base / source.path, ALIASES)[split], report, strict)
    if isinstance(source, FilesSource | PythonSource):
        paths = documents.library() if isinstance(source, PythonSource) else own_files(source, base)
        return documents.file_rows(paths, report, strict)
    name = getattr(source, split)
    if isinstance(source, TextSource):
        names = (name,) if isinstance(name, str) else name
        each = (documents.document_rows(base / one, one, source.documents, report, strict) for one in names)
        return chain.from_iterable(each)
    if isinstance(source, AlignedSource):
        return aligned_rows((base / name[0], base / name[1]), name, report, strict)
    path = base / name
    if isinstance(source, TsvSource):
        return table_rows(path, name, source.columns, report, strict, source.header)
    if isinstance(source, JsonlSource):
        return object_rows(path, name, source.fields, report, strict)
    if isinstance(source, SquadSource):
        return question_rows(path, name, report, strict)
    if isinstance(source, PoSource):
        return memories.catalogue_rows(path, name, report, strict)
    if isinstance(source, TmxSource):
        return memories.memory_rows(path, name, source.languages, report, strict)
    raise AssertionError(source)


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
