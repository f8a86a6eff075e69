"""Images: looked at whole, and one of a few labels is the answer. What is learned from may be moved and mirrored.

B images in a batch, S pixels on a side, C colours
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glassformer.tasks.losses import class_loss
from glassformer.tasks.protocol import Learner, Tensors

if TYPE_CHECKING:
    from glassformer.data.images import ImageSet


@dataclass(frozen=True)
class ImageBatch(Tensors):
    """Images to be told apart, and what is right for each."""

    pixels: Tensor  # (B, C, S, S)
    right: Tensor  # (B), the number of the label

    @property
    def answers(self) -> int:
        """One an image."""
        return len(self.right)

    @property
    def tokens(self) -> int:
        """Here, images."""
        return len(self.right)

    @property
    def places(self) -> int:
        """As many: nothing is padded."""
        return len(self.right)


def image_loss(learner: Learner, batch: ImageBatch) -> Tensor:
    """The summed loss of the right labels."""
    return class_loss(learner.head(learner.hidden(batch.pixels)), batch.right, learner.smoothing)


def normalised(pixels: NDArray[np.uint8], mean: float, deviation: float) -> Tensor:
    """Shades (B, S, S, C) from 0 to 255 as a model sees them, (B, C, S, S): around nought, and none of them large."""
    shades = torch.from_numpy(np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))).float()
    return (shades / 255 - mean) / deviation


@dataclass(frozen=True)
class ImageCollator:
    """Makes batches of images, each moved by up to `shift` pixels to each side and mirrored or not, as the dice say."""

    pairs: ImageSet
    mean: float
    deviation: float
    shift: int = 0
    flip: bool = False

    def __call__(self, rows: NDArray[Any], dice: np.random.Generator) -> ImageBatch:
        """A batch of some rows."""
        pixels = self.pairs.pixels[rows]  # (B, S, S, C)
        if self.shift:
            pixels = moved(pixels, dice.integers(-self.shift, self.shift + 1, (len(rows), 2)))
        if self.flip:
            mirrored = dice.random(len(rows)) < 0.5
            pixels = np.where(mirrored[:, None, None, None], pixels[:, :, ::-1], pixels)
        right = self.pairs.numbers[rows].astype(np.int64)
        return ImageBatch(normalised(pixels, self.mean, self.deviation), torch.from_numpy(right))


def moved(pixels: NDArray[np.uint8], by: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Images (B, S, S, C) moved down and right by so many pixels (B, 2); the edge fills what is left behind."""
    count, size = pixels.shape[:2]
    places = np.clip(np.arange(size) - by[:, :, None], 0, size - 1)  # (B, 2, S)
    down, right = places[:, 0, :, None], places[:, 1, None, :]  # (B, S, 1), (B, 1, S)
    result: NDArray[np.uint8] = pixels[np.arange(count)[:, None, None], down, right]
    return result
