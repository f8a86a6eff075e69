"""A run that classifies images: files or pixels in, labels out.

B images, S pixels on a side, C colours or classes
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file
from torch import Tensor, nn

from glassformer.data.images import ImageSet
from glassformer.data.pictures import Pixels, pixels_of
from glassformer.errors import InputError, RunError
from glassformer.recipe import ImagesTask, Recipe
from glassformer.run import folder as files
from glassformer.run.held_out import Progress, device_of, held_out
from glassformer.run.labelling import ClassEvaluation, Classified, classified, compared, number_of
from glassformer.tasks import normalised
from glassformer.writing import replacing

PIXELS = "images.safetensors"  # of held-out images: valid.images.safetensors


class ImageClassifier:
    """A trained model that tells images apart: `run.classify(["one.png", "another.jpg"])`."""

    def __init__(self, recipe: Recipe, model: nn.Module, labels: list[str], path: Path | None = None) -> None:
        self.recipe, self.model, self.labels, self.path = recipe, model, labels, path
        self.task = cast(ImagesTask, recipe.task)

    def pairs(self, split: str = "test") -> list[tuple[Pixels, str]]:
        """The images and labels that were kept out of its training: "valid" or "test"."""
        labels = [label for _, label in held_out(self.path, split)]
        return list(zip(read_images(cast(Path, self.path), split), labels, strict=True))

    def names(self, split: str = "test") -> list[str]:
        """The names of these images."""
        return [name for name, _ in held_out(self.path, split)]

    def with_model(self, model: nn.Module) -> ImageClassifier:
        """The same with another model."""
        return ImageClassifier(self.recipe, model, self.labels, self.path)

    def see(self, image: Any) -> Pixels:
        """An image as the model is shown it, (S, S, C): from a file, an array or one of Pillow's."""
        return pixels_of(image, self.task)

    def classify(self, images: Sequence[Any], progress: Progress | None = None) -> list[Classified]:
        """The label of each image, in their order."""
        if isinstance(images, str | Path):
            raise InputError("classify takes a list of images: put the image into brackets")
        return classified(self._log_probabilities(images, progress), self.labels)

    def evaluate(
        self,
        examples: Sequence[tuple[Any, str]],
        progress: Progress | None = None,
        complain: Callable[[str], None] | None = None,
    ) -> ClassEvaluation:
        """Classify the images of some examples, and compare with their labels.

        One that cannot be read is an error, unless there is somebody to `complain` to: then it is left out.
        """
        if not examples:
            raise InputError("there is nothing to evaluate: no labelled image")
        for _, label in examples:
            number_of(label, self.labels)
        images, wrong = [image for image, _ in examples], set[int]()

        def leave_out(row: int, error: InputError) -> None:
            if complain is None:
                raise error
            wrong.add(row)
            complain(str(error))

        found = self._log_probabilities(images, progress, leave_out)  # (B, C)
        if not len(found):
            raise InputError(f"none of the {len(images):,} images could be read")
        right = [label for row, (_, label) in enumerate(examples) if row not in wrong]
        return compared(found, right, self.labels)

    def measure(self, examples: Sequence[tuple[Pixels, str]], most: int) -> dict[str, float]:
        """What validation tells."""
        return self.evaluate(examples).summary()

    @torch.inference_mode()
    def _log_probabilities(
        self,
        images: Sequence[Any],
        progress: Progress | None = None,
        leave_out: Callable[[int, InputError], None] | None = None,
    ) -> Tensor:
        """Of each label for each image that can be read, (B, C); who leaves out others is told their places."""
        found, size, device = [], self.recipe.train.batch_tokens, device_of(self.model)
        for first in range(0, len(images), size):
            seen = []
            for row, image in enumerate(images[first : first + size], start=first):
                try:
                    seen.append(self.see(image))
                except InputError as error:
                    if leave_out is None:
                        raise
                    leave_out(row, error)
            if seen:
                shown = normalised(np.stack(seen), self.task.mean, self.task.deviation).to(device)  # (B, C, S, S)
                found.append(F.log_softmax(self.model(shown).float(), dim=-1).cpu())
            if progress is not None:
                progress(min(first + size, len(images)), len(images))
        return torch.cat(found) if found else torch.zeros(0, len(self.labels))


def write_images(folder: Path, split: str, images: ImageSet) -> None:
    """Write the images of a split that was kept out of training, their names and labels."""
    rows = [{"source": name, "target": label} for name, label in zip(images.names, images.labels, strict=True)]
    files.write_text(folder / f"{split}.jsonl", "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    with replacing(folder / f"{split}.{PIXELS}") as new:
        save_file({"pixels": np.ascontiguousarray(images.pixels)}, new)


def read_images(folder: Path, split: str) -> NDArray[np.uint8]:
    """The images of a split that was kept out of training, (B, S, S, C)."""
    path = folder / f"{split}.{PIXELS}"
    try:
        return cast(NDArray[np.uint8], load_file(path)["pixels"])
    except (OSError, KeyError, SafetensorError) as error:
        raise RunError(f"{path}: cannot be read: {error}") from None
