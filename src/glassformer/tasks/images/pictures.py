"""Pictures: an image file, whatever its format, as pixels of the size and the colours that a recipe says.

B images in a batch, S pixels on a side, C colours
"""

from __future__ import annotations

import base64
import io
import re
from contextlib import nullcontext
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from glassformer.data.examples import BadRow, Pixels, check_pixels, open_image, too_large
from glassformer.errors import InputError
from glassformer.files import check_file

if TYPE_CHECKING:
    from glassformer.tasks.images.options import PictureTask

MODES = {1: "L", 3: "RGB"}
LARGE, ONE = 1 << 24, Lock()  # images of more pixels are read by one thread at a time, for the sake of memory
MOST_FRAMES = 10_000  # of an animation
MOST_FILMED = 1 << 31  # pixels in all images of an animation: to read one, those before it are unpacked
DATA_URL = re.compile(r"data:image/(?:png|jpeg);base64,([A-Za-z0-9+/=]*)")
SENT, MOST_LETTERS = ("PNG", "JPEG"), 8 << 20  # what a page may send: formats, and letters of base64
DEEP = 257  # between shades of 16 bits and of 8: 65,535 is 255


def read_picture(path: Path, task: PictureTask) -> Pixels:
    """The pixels of an image file, turned as its camera says; of an animation, the first image."""
    return read_film(path, task, 1)[0]


def read_film(path: Path, task: PictureTask, most: int) -> list[Pixels]:
    """The images of an animation, at most so many of them, drawn evenly; any other image file has one."""
    return _read(path, str(path), task, most)


def picture_in(text: str, task: PictureTask) -> Pixels:
    """The pixels of an image that a page sends, as a data URL of a PNG or a JPEG."""
    found = DATA_URL.fullmatch(text)
    if found is None:
        raise InputError("the image must be a PNG or a JPEG")
    if len(found[1]) > MOST_LETTERS:
        raise InputError(f"the image: its file is larger than {MOST_LETTERS * 3 // 4 >> 20} MB")
    try:
        data = base64.b64decode(found[1], validate=True)
    except ValueError:
        raise InputError("the image: is damaged: it is not in base64") from None
    return _read(io.BytesIO(data), "the image", task, 1, SENT)[0]


def _read(
    file: Path | io.BytesIO, name: str, task: PictureTask, most: int, formats: tuple[str, ...] = ()
) -> list[Pixels]:
    """At most so many images of a file."""
    try:
        if isinstance(file, Path):
            check_file(file)
        with open_image(file, name, formats) as image, ONE if image.width * image.height > LARGE else nullcontext():
            found = []
            for number in evenly(_count(image, name) if most > 1 else 1, most):
                if number:
                    image.seek(number)
                    check_pixels(image, name)  # it may be larger than the first
                image.load()
                found.append(fitted(ImageOps.exif_transpose(image), task, name))
            return found
    except Image.DecompressionBombError:
        raise too_large(name) from None
    except UnidentifiedImageError:
        raise InputError(f"{name}: is no image of a known format") from None
    except (SyntaxError, ValueError, EOFError) as error:
        raise error if isinstance(error, InputError) else InputError(f"{name}: is damaged: {error}") from None
    except OSError as error:  # from the disk, with a reason, or from a decoder
        what = f"cannot be read: {error.strerror}" if error.strerror else f"is damaged: {error}"
        raise InputError(f"{name}: {what}") from None


def _count(image: Image.Image, name: str) -> int:
    """How many images an animation has; one with very many of them, or of their pixels, is refused."""
    count = int(getattr(image, "n_frames", 1))
    if count > MOST_FRAMES:
        raise InputError(f"{name}: has {count:,} images: a film has at most {MOST_FRAMES:,}")
    if count * image.width * image.height > MOST_FILMED:
        size = f"{count:,} images of {image.width} x {image.height} pixels"
        raise InputError(f"{name}: has {size}: a film has at most {MOST_FILMED:,} pixels: make it smaller or shorter")
    return count


def evenly(count: int, most: int) -> list[int]:
    """The numbers of at most so many of `count` things in a row: all of them, or some at equal distances."""
    if count <= most:
        return list(range(count))
    return [0] if most == 1 else [round(each * (count - 1) / (most - 1)) for each in range(most)]


def fitted(image: Image.Image, task: PictureTask, name: str = "the image") -> Pixels:
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


def pixels_of(image: Any, task: PictureTask) -> Pixels:
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


def readable_pixels(image: Any, task: PictureTask) -> Pixels:
    """The pixels of an image of a source; one that cannot be read is a bad row."""
    try:
        return pixels_of(image, task)
    except InputError as error:
        known = f"{image}: " if isinstance(image, Path) else "the image: "
        raise BadRow("unreadable images", str(error).removeprefix(known)) from None


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


def patch_names(side: int) -> list[str]:
    """What the tokens of an image are called that has so many patches on a side: by their row and column."""
    return ["class", *(f"{row + 1},{column + 1}" for row in range(side) for column in range(side))]
