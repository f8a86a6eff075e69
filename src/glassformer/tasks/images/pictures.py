"""Pictures: an image file, whatever its format, as pixels of the size and the colours that a recipe says.

B images in a batch, S pixels on a side, C colours
"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from glassformer.data.examples import Pixels, open_image
from glassformer.errors import InputError
from glassformer.files import check_file

if TYPE_CHECKING:
    from glassformer.tasks.images import ImagesTask

MODES = {1: "L", 3: "RGB"}
LARGE, ONE = 1 << 24, Lock()  # images of more pixels are read by one thread at a time, for the sake of memory
DEEP = 257  # between shades of 16 bits and of 8: 65,535 is 255


def read_picture(path: Path, task: ImagesTask) -> Pixels:
    """The pixels of an image file, turned as its camera says; of an animation, the first image."""
    try:
        check_file(path)
        with open_image(path, str(path)) as image, ONE if image.width * image.height > LARGE else nullcontext():
            image.load()
            return fitted(ImageOps.exif_transpose(image), task, str(path))
    except UnidentifiedImageError:
        raise InputError(f"{path}: is no image of a known format") from None
    except (SyntaxError, ValueError, EOFError) as error:
        raise error if isinstance(error, InputError) else InputError(f"{path}: is damaged: {error}") from None
    except OSError as error:  # from the disk, with a reason, or from a decoder
        what = f"cannot be read: {error.strerror}" if error.strerror else f"is damaged: {error}"
        raise InputError(f"{path}: {what}") from None


def fitted(image: Image.Image, task: ImagesTask, name: str = "the image") -> Pixels:
    """An image as the recipe wants it: its colours, then its size, (S, S, C). What is transparent becomes white."""
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
    """The pixels of an image: a path, one of Pillow's images, or an array of values from 0 to 255."""
    if isinstance(image, str | Path):
        return read_picture(Path(image), task)
    if isinstance(image, np.ndarray):
        if image.dtype != np.uint8 or image.ndim not in (2, 3):
            raise InputError(f"an array of {image.ndim} dimensions and {image.dtype} is no image: uint8 is, (S, S, C)")
        image = Image.fromarray(image[..., 0] if image.ndim == 3 and image.shape[2] == 1 else image)
    if not isinstance(image, Image.Image):
        raise InputError(f"{image!r} is no image: name its file, or hand over an array or one of Pillow's")
    return fitted(image, task)


def moved(pixels: Pixels, by: NDArray[np.int64]) -> Pixels:
    """Images (B, S, S, C) moved down and right by so many pixels (B, 2); the edge fills what is left behind."""
    count, size = pixels.shape[:2]
    places = np.clip(np.arange(size) - by[:, :, None], 0, size - 1)  # (B, 2, S)
    down, right = places[:, 0, :, None], places[:, 1, None, :]  # (B, S, 1), (B, 1, S)
    result: Pixels = pixels[np.arange(count)[:, None, None], down, right]
    return result


def normalised(pixels: Pixels, mean: float, deviation: float) -> Tensor:
    """Pixels (B, S, S, C) from 0 to 255 as a model reads them, (B, C, S, S): around 0, and none of them large."""
    values = torch.from_numpy(np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))).float()
    return (values / 255 - mean) / deviation
