"""An image classifier: a trained model that classifies images, files or pixels, in use.

B images, S pixels on a side, C colours or classes
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from glassformer.data.examples import Pixels, png_of
from glassformer.errors import InputError
from glassformer.interop.huggingface import Exported
from glassformer.looking.patching import Forced
from glassformer.tasks.images.pictures import normalised, patch_names, picture_in, pixels_of
from glassformer.tasks.labels import ClassEvaluation, Classified, Labeller, classified, number_of, predictions
from glassformer.tasks.run import Progress, check_list

Complain = Callable[[str], None]


class ImageClassifier(Labeller):
    """A trained model that classifies images: `run.classify(["one.png", "another.jpg"])`."""

    reads_files: ClassVar[bool] = True
    reads_images: ClassVar[bool] = True

    def see(self, image: Any) -> Pixels:
        """An image as the model reads it, (S, S, C): from a file, an array or one of Pillow's images."""
        return pixels_of(image, self.task)

    def item(self, text: str) -> Pixels:
        """The image in a file of some name."""
        if not text.strip():
            raise InputError("the line is empty: expected the name of an image file")
        return self.see(text)

    def from_page(self, text: str) -> Pixels:
        """The image in a data URL of a PNG or a JPEG."""
        return picture_in(text, self.task)

    def suggestion(self, example: Any) -> str:
        """The image as a data URL."""
        return f"data:image/png;base64,{png_of(self.pixels_of(example))}"

    def picture(self, text: Any) -> Pixels:
        return self.see(text)

    def classify(self, items: Sequence[Any], progress: Progress | None = None) -> list[Classified]:
        check_list(items, "classify")
        return classified(self._log_probabilities(items, progress)[0], self.labels)

    def evaluate(
        self, examples: Sequence[Any], progress: Progress | None = None, complain: Complain | None = None
    ) -> ClassEvaluation:
        """Classify the images of some examples (image, label, name), and compare with their labels.

        An image that cannot be read is an error, unless `complain` is given: then that is called, and it is left out.
        """
        if not examples:
            raise InputError("there is nothing to evaluate: no labelled image")
        for _, label, *_ in examples:
            number_of(label, self.labels)
        found, rows = self._log_probabilities([example[0] for example in examples], progress, complain)  # (B, C)
        if not rows:
            raise InputError(f"none of the {len(examples):,} images could be read")
        made = predictions([found], [[examples[row][1]] for row in rows], self.labels)
        answers, unreadable = classified(found, self.labels), len(examples) - len(rows)
        return ClassEvaluation(made, self.labels, answers, noun="images", unreadable=unreadable)

    @torch.inference_mode()
    def _log_probabilities(
        self, images: Sequence[Any], progress: Progress | None = None, complain: Complain | None = None
    ) -> tuple[Tensor, list[int]]:
        """Of each label for each image that can be read, (B, C), and which these are; without `complain`, it is all."""
        found, rows, size = [torch.zeros(0, len(self.labels))], list[int](), self.recipe.train.batch_tokens
        for first in range(0, len(images), size):
            read = []
            for row, image in enumerate(images[first : first + size], start=first):
                try:
                    read.append(self.see(image))
                    rows.append(row)
                except InputError as error:
                    if complain is None:
                        raise
                    complain(str(error))
            if read:
                found.append(F.log_softmax(self.model(self._inputs(read)).float(), dim=-1).cpu())
            if progress is not None:
                progress(min(first + size, len(images)), len(images))
        return torch.cat(found), rows

    def _inputs(self, images: Sequence[Pixels]) -> Tensor:
        return normalised(np.stack(images), self.task.mean, self.task.deviation).to(self.device)  # (B, C, S, S)

    def forced(self, text: Any, written: Sequence[int] | None = None) -> Forced:
        """What the model takes to see an image; its patches are named by their row and column."""
        names = patch_names(self.task.size // self.model.blueprint.arguments["patch"])
        return Forced((self._inputs([self.see(text)]),), {"encoder": [names]}, {})

    def name_of(self, example: Any) -> str:
        return str(example[2])

    def pixels_of(self, example: Any) -> Pixels:
        return self.see(example[0])

    def next_commands(self, examples: Sequence[Any]) -> list[str]:
        return ["classify --run RUN image.png", "evaluate --run RUN"]

    def exported(self) -> Exported:
        """A ViT with a classification head, and how images are resized and scaled."""
        return Exported(
            opens_with="AutoModelForImageClassification and AutoImageProcessor",
            notes=self.notes,
            preprocessor=self.task.preprocessor(),
        )
