"""Films: an image, or several in a row, as the pixels that a captioner reads.

B images or films in a batch, F frames, S pixels on a side, C colours
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image
from torch import Tensor

from glassformer.data.examples import Pixels
from glassformer.data.sources.labelled import IMAGES
from glassformer.errors import InputError
from glassformer.tasks.images.pictures import evenly, normalised, patch_names, pixels_of, read_film

if TYPE_CHECKING:
    from glassformer.tasks.captioning import CaptioningTask


def film_of(shown: Any, task: CaptioningTask) -> Pixels:
    """What a captioner reads, (F, S, S, C), of an image or a film; fewer frames are shown longer, of more some are.

    It may be a file, a folder of images in the order of their names, one of Pillow's images, an array of pixels
    (S, S, C), or several of these. If `task.frames` is 1, it is one image.
    """
    frames = _frames(shown, task)
    if len(frames) > 1 and task.frames == 1:
        raise InputError(f"a film of {len(frames)} images is given, but task.frames is 1: this run reads single images")
    held = [round(each * (len(frames) - 1) / max(task.frames - 1, 1)) for each in range(task.frames)]
    return np.stack([frames[number] for number in held])  # (F, S, S, C)


def _frames(shown: Any, task: CaptioningTask) -> list[Pixels]:
    """The images of a film, `task.frames` at most."""
    if isinstance(shown, str | Path):
        path = Path(shown)
        return _in_folder(path, task) if path.is_dir() else read_film(path, task, task.frames)
    if isinstance(shown, np.ndarray) and shown.ndim == 4:
        shown = tuple(shown)
    if isinstance(shown, Image.Image) or not isinstance(shown, Sequence):
        return [pixels_of(shown, task)]
    if not len(shown):
        raise InputError("a film without images is given: name one at least")
    if len(shown) == 1:
        return _frames(shown[0], task)
    return [pixels_of(shown[number], task) for number in evenly(len(shown), max(task.frames, 2))]


def _in_folder(folder: Path, task: CaptioningTask) -> list[Pixels]:
    """The images of a folder, in the order of their names."""
    try:
        files = sorted(path for path in folder.iterdir() if path.suffix.lower() in IMAGES)
    except OSError as error:
        raise InputError(f"{folder}: cannot be read: {error.strerror}") from None
    if not files:
        raise InputError(f"{folder}: is a folder without images: name an image file, or a folder of a film's images")
    return _frames(tuple(files), task)


def inputs_of(films: Pixels, task: CaptioningTask) -> Tensor:
    """Films (B, F, S, S, C) as a model reads them: images (B, C, S, S), or films (B, F, C, S, S)."""
    count = len(films)
    pixels = normalised(films.reshape(-1, *films.shape[2:]), task.mean, task.deviation)  # (B · F, C, S, S)
    return pixels if task.frames == 1 else pixels.view(count, task.frames, *pixels.shape[1:])


def token_names(task: CaptioningTask, patch: int) -> list[str]:
    """What the tokens of an image are called, and those of a film: "2: 1,4" is a patch of the second frame."""
    names = patch_names(task.size // patch)
    if task.frames == 1:
        return names
    return [f"{frame + 1}: {name}" for frame in range(task.frames) for name in names]
