"""Images: from digits or folders to pixels on disk, once; the next time, they are found by what they were made of.

As with texts, the content decides on the split, here the pixels; what is repeated or damaged is counted.

N images, S pixels on a side, C colours
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from glassformer.data import cache as caches
from glassformer.data.cleaning import Seen, bytes_hash, split_of
from glassformer.data.labelled import IMAGES, labelled_files, split_folders
from glassformer.data.pictures import Pixels, fitted, read_picture
from glassformer.data.reading import Progress
from glassformer.data.report import Report
from glassformer.data.sources import ALIASES, SPLITS, Split, own_splits
from glassformer.data.store import Lengths, mapped
from glassformer.errors import DataError, InputError, TrainingError
from glassformer.recipe import Data, ImageFolderSource, ImagesTask, Recipe
from glassformer.text import Tokenizer

BLOCK = 256  # images that are read together
SHADES = 16  # of scikit-learn's digits, beside 0


@dataclass(frozen=True, slots=True)
class Picture:
    """An image, its label, and where it is from: `cat/1.png`."""

    pixels: Pixels
    label: str
    name: str


class ImageSet:
    """Images in memory-mapped files: `pixels` (N, S, S, C), the `numbers` of their labels (N), their `names`."""

    def __init__(self, folder: Path, name: str, task: ImagesTask, labels: list[str]) -> None:
        flat = mapped(folder / f"{name}.pixels", np.uint8)
        self.pixels: NDArray[np.uint8] = flat.reshape(-1, task.size, task.size, task.colours)
        self.numbers: NDArray[np.int32] = mapped(folder / f"{name}.numbers", np.int32)
        self.names: list[str] = json.loads((folder / f"{name}.names").read_text(encoding="utf-8"))
        self._labels = labels

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def labels(self) -> list[str]:
        """The label of each image."""
        return [self._labels[number] for number in self.numbers.tolist()]

    @property
    def lengths(self) -> Lengths:
        """To a plan of batches, each image is one: (N, 2)."""
        return np.broadcast_to(np.array([1, 0], np.int32), (len(self), 2))


@dataclass(frozen=True)
class PreparedImages:
    """Images that are ready to be learned from."""

    splits: dict[str, ImageSet]
    labels: list[str]  # in the order of their numbers
    report: Report
    checksums: dict[str, list[int]]

    @property
    def tokenizers(self) -> tuple[Tokenizer, ...]:
        """None: nothing is read or written."""
        return ()

    def held_out(self, split: str) -> list[tuple[Pixels, str]]:
        """The images of valid or test, and their labels."""
        return list(zip(self.splits[split].pixels, self.splits[split].labels, strict=True))


def prepare_images(recipe: Recipe, base: Path, cache: Path, progress: Progress | None = None) -> PreparedImages:
    """The recipe's images, from the cache if they are there, else made and put there, as `prepare` does with texts."""
    try:
        folder = cache / caches.fingerprint(recipe, base, cache)
        prepared = _open(folder, recipe)
        if prepared is None:
            tell = progress or (lambda stage, done, total: None)
            caches.fill(cache, folder, lambda making: _make(recipe, base, making, tell))
            prepared = _open(folder, recipe)
    except OSError as error:
        raise TrainingError(f"{cache}: the prepared images cannot be written: {error.strerror or error}") from None
    if prepared is None:
        raise DataError(f"{folder}: was written but cannot be read back: the disk may be damaged")
    return prepared


def _open(folder: Path, recipe: Recipe) -> PreparedImages | None:
    contents = caches.check(folder)
    if contents is None:
        return None
    labels = contents["labels"]
    splits: dict[str, ImageSet] = {split: ImageSet(folder, split, _task(recipe), labels) for split in SPLITS}
    return PreparedImages(splits, labels, Report.from_dict(contents["report"]), contents["files"])


def _task(recipe: Recipe) -> ImagesTask:
    return cast(ImagesTask, recipe.task)


def _make(recipe: Recipe, base: Path, folder: Path, progress: Progress) -> None:
    report, own = Report(), own_splits(recipe.source, base)
    labels = _labels(recipe, base)
    with ExitStack() as stack:
        writers = {split: stack.enter_context(Writer(folder, split, labels)) for split in SPLITS}
        sorter = Sorter(recipe.data, own, writers, report)
        for split in sorted(own, key="train".__eq__):  # held-out folders first, to see what of them is in train
            for block in _pictures(recipe, base, split, report):
                progress("reading", report.read, None)
                if split == "train":
                    sorter.sort(block)
                else:
                    sorter.hold_out(split, block)
        report.kept = Counter({split: len(writer.numbers) for split, writer in writers.items()})
    if not report.kept["train"]:
        raise DataError("the source leaves no image to train on: " + report.sentence())
    caches.seal(folder, {"labels": labels, "report": report.to_dict()})


def _labels(recipe: Recipe, base: Path) -> list[str]:
    """What is to be told apart."""
    if not isinstance(recipe.source, ImageFolderSource):
        return [str(digit) for digit in range(10)]
    folder = split_folders(base / recipe.source.path, ALIASES)["train"]
    labels = sorted({label for _, label in labelled_files(folder, IMAGES)})
    if len(labels) < 2:
        raise DataError(f"there is nothing to tell apart: the only label in {folder} is {labels[0]!r}")
    return labels


def _pictures(recipe: Recipe, base: Path, split: Split, report: Report) -> Iterator[list[Picture]]:
    """The images of a source's own split, block by block; bad ones are counted, or stop everything in strict mode."""
    task, source = _task(recipe), recipe.source
    if not isinstance(source, ImageFolderSource):
        report.read += len(digits := _digits(task))
        yield digits
        return
    files = labelled_files(split_folders(base / source.path, ALIASES)[split], IMAGES)
    with ThreadPoolExecutor(recipe.data.workers or None) as readers:
        for first in range(0, len(files), BLOCK):
            block = files[first : first + BLOCK]
            found = readers.map(lambda file: _read(file[0], task), block)
            good = []
            for (path, label), pixels in zip(block, found, strict=True):
                name = f"{label}/{path.name}"
                if isinstance(pixels, str):
                    report.add_bad("unreadable images", name, pixels, recipe.data.strict)
                else:
                    report.read += 1
                    good.append(Picture(pixels, label, name))
            yield good


def _read(path: Path, task: ImagesTask) -> Pixels | str:
    """The pixels of a file, or why there are none."""
    try:
        return read_picture(path, task)
    except InputError as error:
        return str(error).removeprefix(f"{path}: ")


def _digits(task: ImagesTask) -> list[Picture]:
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise DataError("source.kind digits needs the library scikit-learn: pip install 'glassformer[tasks]'") from None
    found = load_digits()
    shades = (found.images * (255 / SHADES)).round().astype(np.uint8)  # (N, 8, 8)
    return [
        Picture(fitted(Image.fromarray(each), task, "scikit-learn's digit"), str(label), f"digit {number}")
        for number, (each, label) in enumerate(zip(shades, found.target.tolist(), strict=True))
    ]


class Writer:
    """Writes the images of a split: `NAME.pixels`, `NAME.numbers` and `NAME.names`."""

    def __init__(self, folder: Path, name: str, labels: list[str]) -> None:
        self._folder, self._name = folder, name
        self._known = {label: number for number, label in enumerate(labels)}
        self._pixels = (folder / f"{name}.pixels").open("wb")
        self.numbers: list[int] = []
        self._names: list[str] = []

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pixels.close()
        np.array(self.numbers, np.int32).tofile(self._folder / f"{self._name}.numbers")
        (self._folder / f"{self._name}.names").write_text(json.dumps(self._names), encoding="utf-8")

    def knows(self, label: str) -> bool:
        """Whether a label is one of those in training."""
        return label in self._known

    def write(self, picture: Picture) -> None:
        """Write an image."""
        self._pixels.write(picture.pixels.tobytes())
        self.numbers.append(self._known[picture.label])
        self._names.append(picture.name)


class Sorter:
    """Puts images where they belong, by their pixels, and counts. What a source holds out itself stays whole."""

    def __init__(self, data: Data, own: tuple[Split, ...], writers: dict[Split, Writer], report: Report) -> None:
        self.data, self.writers, self.report = data, writers, report
        self.seen = Seen()
        self.held_out: dict[Split, Seen] = {split: Seen() for split in own if split != "train"}
        self.valid = 0.0 if "valid" in own else data.valid
        self.test = 0.0 if "test" in own else data.test

    def hold_out(self, split: Split, pictures: list[Picture]) -> None:
        """Take images of the source's own valid or test."""
        self.held_out[split].add(self._hashes(pictures))
        for picture in pictures:
            if self.writers[split].knows(picture.label):
                self.writers[split].write(picture)
            else:
                self.report.dropped["label unseen in training"] += 1

    def sort(self, pictures: list[Picture]) -> None:
        """Take images of the source's train: drop what was there before, and split some off."""
        hashes = self._hashes(pictures)
        if self.data.duplicates == "drop":
            new = self.seen.add(np.array([self._whole(each) for each in pictures], np.uint64))
            if repeated := int((~new).sum()):
                self.report.dropped["duplicates"] += repeated
            pictures, hashes = [each for each, fresh in zip(pictures, new, strict=True) if fresh], hashes[new]
        for split, held_out in self.held_out.items():
            if shared := int(held_out.contains(hashes).sum()):
                self.report.shared[split] += shared
        for picture, hashed in zip(pictures, hashes.tolist(), strict=True):
            self.writers[cast(Split, split_of(hashed, self.valid, self.test))].write(picture)

    def _hashes(self, pictures: list[Picture]) -> NDArray[np.uint64]:
        return np.array([bytes_hash(each.pixels.tobytes(), self.data.seed) for each in pictures], np.uint64)

    @staticmethod
    def _whole(picture: Picture) -> int:
        return bytes_hash(picture.pixels.tobytes() + picture.label.encode())
