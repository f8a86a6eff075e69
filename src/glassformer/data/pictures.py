"""Pictures: an image file, whatever its format, as pixels of the size and the colours that a recipe says.

S pixels on a side, C colours
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from glassformer.errors import InputError
from glassformer.recipe import ImagesTask

Pixels = NDArray[np.uint8]  # (S, S, C)
MODES = {1: "L", 3: "RGB"}
DEEP = 257  # between shades of 16 bits and of 8: 65,535 is 255


def read_picture(path: Path, task: ImagesTask) -> Pixels:
    """The pixels of an image file, turned as its camera says; of an animation, the first picture."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what can be read is read
            with Image.open(path) as image:
                image.load()
                return fitted(ImageOps.exif_transpose(image), task, str(path))
    except UnidentifiedImageError:
        raise InputError(f"{path}: is no image of a known format") from None
    except (Image.DecompressionBombError, SyntaxError, ValueError, EOFError) as error:
        raise error if isinstance(error, InputError) else InputError(f"{path}: is damaged: {error}") from None
    except OSError as error:  # from the disk, with a reason, or from a decoder
        what = f"cannot be read: {error.strerror}" if error.strerror else f"is damaged: {error}"
        raise InputError(f"{path}: {what}") from None


def fitted(image: Image.Image, task: ImagesTask, name: str = "the image") -> Pixels:
    """An image as the task wants it: its colours, then its size, (S, S, C). What is transparent is white."""
    size = (task.size, task.size)
    if image.size != size and task.others == "refuse":
        wide, high = image.size
        raise InputError(f"{name}: is {wide} x {high} pixels, and not {task.size} x {task.size} as the recipe says")
    if image.mode.startswith("I;16"):
        image = Image.fromarray((np.asarray(image) // DEEP).astype(np.uint8))
    if image.has_transparency_data:
        clear = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", clear.size, "white"), clear)
    image = image.convert(MODES[task.colours])
    if image.size != size:
        image = image.resize(size, Image.Resampling.BILINEAR)
    return np.asarray(image, np.uint8).reshape(*size, task.colours)


def pixels_of(image: Any, task: ImagesTask) -> Pixels:
    """The pixels of whatever stands for an image: a path, one of Pillow's, an array of shades from 0 to 255."""
    if isinstance(image, str | Path):
        return read_picture(Path(image), task)
    if isinstance(image, np.ndarray):
        if image.dtype != np.uint8 or image.ndim not in (2, 3):
            raise InputError(f"an array of {image.ndim} dimensions and {image.dtype} is no image: uint8 is, (S, S, C)")
        image = Image.fromarray(image[..., 0] if image.ndim == 3 and image.shape[2] == 1 else image)
    if not isinstance(image, Image.Image):
        raise InputError(f"{image!r} is no image: name its file, or hand over an array or one of Pillow's")
    return fitted(image, task)
