"""Images: an image is read whole, and one of a few labels is the answer. In training, it may be moved and mirrored.

B images in a batch, S pixels on a side, C colours, N images
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from glassformer.data import Assets, Context, Corpus, Encoded, Rows
from glassformer.data.examples import Picture, Pixels
from glassformer.data.store import Lengths
from glassformer.recipe import Recipe
from glassformer.recipe.values import Switch
from glassformer.registry import FAMILIES
from glassformer.tasks.images.classifier import ImageClassifier as ImageClassifier
from glassformer.tasks.images.options import PictureTask
from glassformer.tasks.images.pictures import moved, normalised, readable_pixels
from glassformer.tasks.losses import class_loss
from glassformer.tasks.protocol import Learner, Loss, Tensors
from glassformer.tasks.run import Run

NO_TEXT = "an image has no text"


class LabelledImage(NamedTuple):
    """An image, its label and its name."""

    pixels: Pixels
    label: str
    name: str


@dataclass(frozen=True)
class Images:
    """Images as rows of numbers, each `size` x `size` pixels of so many colours."""

    rows: Rows
    size: int
    colours: int

    @property
    def lengths(self) -> Lengths:
        """To the plan of batches, each image counts as one token: (N, 2)."""
        return np.broadcast_to(np.array([1, 0], np.int32), (len(self.rows), 2))

    def __getitem__(self, rows: NDArray[Any]) -> tuple[Pixels, NDArray[np.int64]]:
        """The pixels (B, S, S, C) and the labels (B) of some rows."""
        shape = self.size, self.size, self.colours
        found = self.rows.flat.reshape(-1, np.prod(shape) + 1)[rows]  # (B, S * S * C + 1)
        return found[:, :-1].astype(np.uint8, copy=False).reshape(-1, *shape), found[:, -1].astype(np.int64)


@dataclass(frozen=True)
class ImageBatch(Tensors):
    """Images to classify, and their labels. Each image counts as a token, and nothing is padded."""

    pixels: Tensor  # (B, C, S, S)
    labels: Tensor  # (B)

    @property
    def targets(self) -> int:
        """One an image."""
        return len(self.labels)

    tokens = padded_tokens = targets


def image_loss(learner: Learner, batch: ImageBatch) -> Tensor:
    """The summed loss of the labels."""
    return class_loss(learner.head(learner.hidden(batch.pixels)), batch.labels, learner.smoothing)


@dataclass(frozen=True)
class ImageCollator:
    """Makes batches of images, each shifted by up to `shift` pixels to each side and mirrored or not, by `rng`."""

    pairs: Images
    mean: float
    deviation: float
    shift: int = 0
    flip: bool = False

    def __call__(self, rows: NDArray[Any], rng: np.random.Generator) -> ImageBatch:
        pixels, labels = self.pairs[rows]  # (B, S, S, C), (B)
        if self.shift:
            pixels = moved(pixels, rng.integers(-self.shift, self.shift + 1, (len(rows), 2)))
        if self.flip:
            mirrored = rng.random(len(rows)) < 0.5
            pixels = np.where(mirrored[:, None, None, None], pixels[:, :, ::-1], pixels)
        return ImageBatch(normalised(pixels, self.mean, self.deviation), torch.from_numpy(labels))


class ImagesTask(PictureTask):
    """From an image to one of the labels in training. A model reads (pixel / 255 - mean) / deviation."""

    kind: Literal["images"]
    flip: Switch = Field(False, description="mirror every other training image, left to right")

    answer: ClassVar[str] = "image-classes"
    reads: ClassVar[tuple[type, ...]] = (Picture,)
    tokenizers: ClassVar[int] = 0
    scores: ClassVar[tuple[str, ...]] = ("loss", "accuracy", "f1")
    defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "model": {"family": "vit"},
        "train": {"batch_tokens": 64, "smoothing": 0.0, "watch": "accuracy"},
    }
    unused: ClassVar[dict[str, str]] = {
        **{f"data.{key}": NO_TEXT for key in ("normalise", "strip", "max_*", "long")},
        "tokenizer.*": NO_TEXT,
        "train.validate_sentences": "all validation images are scored",
        "decode.*": "nothing is written",
    }
    suggested: ClassVar[dict[str, dict[str, Any]]] = {
        "task": {"size": 32, "shift": 2},
        "model": {"patch": 4, "width": 128, "heads": 4, "layers": 4, "hidden": 256, "dropout": 0.1},
        "train": {"batch_tokens": 64},
    }
    drawn: ClassVar[set[str]] = {"mean", "deviation", "shift", "flip"}
    threads: ClassVar[bool] = True
    counted_in: ClassVar[str] = "images"
    block: ClassVar[int] = 256
    Example: ClassVar[type[LabelledImage]] = LabelledImage
    loss: ClassVar[Loss] = staticmethod(image_loss)
    Run: ClassVar[type[Run]] = ImageClassifier

    def given(self, recipe: Recipe, vocabularies: tuple[int, ...], classes: int) -> dict[str, Any]:
        """The size of images, and their labels."""
        return {**self.image_given(), "classes": classes, "answer": self.answer}

    def file_source(self, path: str, recipe: Recipe) -> dict[str, Any]:
        """A folder of labels' folders."""
        return {"kind": "image-folder", "path": path}

    def example(self, found: Picture) -> LabelledImage:
        """The pixels, read and fitted."""
        return LabelledImage(readable_pixels(found.image, self), found.label, found.name)

    def split_key(self, example: LabelledImage) -> bytes:
        """The pixels."""
        return example.pixels.tobytes()

    def identity(self, example: LabelledImage) -> bytes:
        """The pixels and the label."""
        return example.pixels.tobytes() + example.label.encode()

    def largest_number(self, assets: Assets) -> int:
        """Of pixels and labels."""
        return max(255, super().largest_number(assets))

    def encode(self, examples: list[LabelledImage], context: Context) -> Encoded:
        """One side is the pixels, the other the number of the label."""
        numbers = {label: number for number, label in enumerate(context.assets.labels)}
        known = [example for example in examples if example.label in numbers]
        dtype = np.min_scalar_type(self.largest_number(context.assets))
        rows = [np.append(example.pixels.ravel(), np.array(numbers[example.label], dtype)) for example in known]
        lengths = np.array([[len(row) - 1, 1] for row in rows], np.int64).reshape(-1, 2)
        counts = Counter(label=len(examples) - len(known))
        return Encoded(np.concatenate([np.zeros(0, dtype), *rows]), lengths, +counts)

    def unvaried(
        self, recipe: Recipe, corpus: Corpus, model: nn.Module, rows: NDArray[Any]
    ) -> tuple[ImageCollator, NDArray[Any]]:
        """Images that are neither moved nor mirrored."""
        return self.model_copy(update={"shift": 0, "flip": False}).collator(recipe, corpus, model), rows

    def collator(self, recipe: Recipe, corpus: Corpus, model: nn.Module) -> ImageCollator:
        images = Images(corpus.splits["train"], self.size, self.colours)
        return ImageCollator(images, self.mean, self.deviation, self.shift, self.flip)

    @classmethod
    def adopts(cls, model: nn.Module) -> bool:
        """A ViT with labels."""
        blueprint: Any = getattr(model, "blueprint", None)
        known = blueprint is not None and cls.answer in FAMILIES[blueprint.family].answers
        return known and blueprint.arguments.get("classes") is not None
