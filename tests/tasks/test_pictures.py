"""Images on their way to a model: read, sorted by their pixels, counted, kept."""

import json
import os
import struct
import zlib
from base64 import b64encode
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image

from glassformer.data import Corpus, prepare
from glassformer.data.examples import from_line
from glassformer.errors import DataError, InputError
from glassformer.recipe import Recipe, make_recipe
from glassformer.tasks.images import Images, ImagesTask, LabelledImage
from glassformer.tasks.images.pictures import fitted, pixels_of, read_film, read_picture

TASK = ImagesTask(kind="images", size=4, colours=3)
pictures = arrays.arrays(np.uint8, (4, 4, 3))


def recipe(folder: Path, task: dict[str, Any] | None = None, **data: Any) -> Recipe:
    source = {"kind": "image-folder", "path": str(folder)}
    task = {"kind": "images", "size": 4, **(task or {})}
    return make_recipe({"task": task, "source": source, "model": {"patch": 4}, "data": data})


def prepared(folder: Path, task: dict[str, Any] | None = None, **data: Any) -> Corpus:
    return prepare(recipe(folder / "images", task, **data), folder, folder / "cache")


def pixels(corpus: Corpus, split: str = "train") -> Any:
    rows, task = corpus.splits[split], corpus.recipe.task
    return Images(rows, task.size, task.colours)[np.arange(len(rows))][0]


def write(path: Path, image: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.asarray(image, np.uint8)).save(path)
    return path


def noise(seed: int) -> Any:
    return np.random.default_rng(seed).integers(0, 256, (4, 4, 3), np.uint8)


def fill(folder: Path, count: int = 40) -> None:
    for number in range(count):
        write(folder / "images" / ("cat", "dog")[number % 2] / f"{number:02}.png", noise(number))


@given(pictures)
def test_a_lossless_file_gives_back_its_pixels(tmp_path_factory: pytest.TempPathFactory, image: Any) -> None:
    path = write(tmp_path_factory.mktemp("one") / "a.png", image)
    assert np.array_equal(read_picture(path, TASK), image)
    assert np.array_equal(pixels_of(image, TASK), image)


@given(st.integers(1, 40), st.integers(1, 40), st.sampled_from(["L", "LA", "RGB", "RGBA", "P", "1", "CMYK", "I;16"]))
@settings(max_examples=40)
def test_every_kind_of_image_becomes_the_wanted_one(width: int, height: int, mode: str) -> None:
    image = Image.new(mode, (width, height), 0)
    for colours in (1, 3):
        task = TASK.model_copy(update={"colours": colours})
        assert fitted(image, task).shape == (4, 4, colours)


def test_grey_of_16_bits_keeps_its_shades_and_what_is_transparent_is_white() -> None:
    deep = Image.fromarray(np.full((4, 4), 257 * 100, np.uint16))
    assert (fitted(deep, TASK) == 100).all()
    assert (fitted(Image.new("RGBA", (4, 4), (9, 9, 9, 0)), TASK) == 255).all()


def test_a_photograph_is_turned_as_its_camera_says(tmp_path: Path) -> None:
    image, tags = Image.fromarray(noise(0)), Image.Exif()
    tags[0x0112] = 3  # upside down
    image.save(tmp_path / "a.png", exif=tags)
    assert np.array_equal(read_picture(tmp_path / "a.png", TASK), noise(0)[::-1, ::-1])


def test_pixels_decide_on_the_split_whatever_the_names(tmp_path: Path) -> None:
    fill(tmp_path)
    first = prepared(tmp_path, valid=0.2, test=0.3)
    for path in sorted((tmp_path / "images" / "cat").iterdir()):
        path.rename(path.with_name(f"x{path.name}"))
    second = prepared(tmp_path, valid=0.2, test=0.3)
    for split, images in first.splits.items():
        assert len(images)
        assert {each.tobytes() for each in pixels(first, split)} == {each.tobytes() for each in pixels(second, split)}
    other = prepared(tmp_path, valid=0.2, test=0.3, seed=1)
    names = [[name for _, _, name in each.held_out("test")] for each in (other, second)]
    assert names[0] != names[1]


def test_duplicates_and_damaged_files_are_counted_with_their_names(tmp_path: Path) -> None:
    fill(tmp_path)
    write(tmp_path / "images" / "cat" / "copy.png", noise(0))
    (tmp_path / "images" / "dog" / "bad.jpg").write_bytes(b"nothing")
    found = prepared(tmp_path)
    assert (found.report.read, found.report.dropped["duplicates"]) == (42, 1)
    assert found.report.examples == ["dog/bad.jpg: is no image of a known format"]
    assert found.assets.labels == ["cat", "dog"]
    with pytest.raises(DataError, match=r"dog/bad.jpg: is no image of a known format \(data.strict is on\)"):
        prepared(tmp_path, strict=True)
    assert list((tmp_path / "cache").glob(".making-*")) == []


def test_other_sizes_are_resized_or_counted(tmp_path: Path) -> None:
    fill(tmp_path, 10)
    write(tmp_path / "images" / "cat" / "large.png", np.zeros((9, 7, 3)))
    assert prepared(tmp_path).report.kept.total() == 11
    refused = prepared(tmp_path, {"others": "refuse"}).report
    assert refused.examples == ["cat/large.png: is 7 x 9 pixels, and not 4 x 4 as the recipe says"]


def test_a_source_that_holds_out_itself_stays_whole(tmp_path: Path) -> None:
    for number in range(6):
        write(tmp_path / "images" / "train" / ("cat", "dog")[number % 2] / f"{number}.png", noise(number))
    write(tmp_path / "images" / "test" / "cat" / "0.png", noise(0))
    write(tmp_path / "images" / "test" / "cow" / "1.png", noise(9))
    report = prepared(tmp_path, valid=0.0).report
    assert (report.kept["train"], report.kept["test"]) == (6, 1)
    assert report.shared["test"] == 1
    assert report.dropped["label unseen in training"] == 1


def test_they_are_found_in_the_cache_until_something_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path, 10)
    first = prepared(tmp_path)
    monkeypatch.setattr("glassformer.tasks.images.pictures.read_picture", lambda *_: pytest.fail("read again"))
    again = prepared(tmp_path, {"shift": 2, "flip": True})  # which is done later
    assert np.array_equal(pixels(again), pixels(first))
    assert isinstance(again.splits["train"].flat, np.memmap)
    assert again.splits["train"].flat.dtype == np.uint8
    monkeypatch.undo()
    write(tmp_path / "images" / "cat" / "new.png", noise(99))
    assert prepared(tmp_path).report.read == 11


def test_digits_need_nothing_but_scikit_learn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = {"kind": "images", "size": 8, "colours": 1, "others": "refuse"}
    table = {"task": task, "source": {"kind": "digits"}, "model": {"patch": 4}, "data": {"valid": 0.1, "test": 0.2}}
    asked = make_recipe(table)
    found = prepare(asked, tmp_path, tmp_path / "cache")
    assert (found.report.read, found.assets.labels) == (1797, [str(digit) for digit in range(10)])
    assert int(pixels(found).max()) == 255
    monkeypatch.setitem(__import__("sys").modules, "sklearn.datasets", None)
    with pytest.raises(DataError, match=r"needs the library scikit-learn: pip install 'glassformer\[tasks\]'"):
        prepare(asked, tmp_path, tmp_path / "other")


def test_no_folder_of_images_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="images: is not a folder"):
        prepared(tmp_path)
    (tmp_path / "images" / "cat").mkdir(parents=True)
    with pytest.raises(DataError, match=r"holds no folders with files in them \(\.png, "):
        prepared(tmp_path)


def bomb(side: int) -> bytes:
    """A PNG of side x side pixels, as small as its header."""
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(bytes(1_000_000))), (b"IEND", b"")]
    made = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(made)


@pytest.mark.parametrize("side", [8_193, 10_000, 60_000, 2**31 - 1])
def test_a_decompression_bomb_is_refused_by_its_size(side: int, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(bomb(side))
    with pytest.raises(InputError, match=r"a\.png: has more than 67,108,864 pixels: make it smaller"):
        pixels_of(tmp_path / "a.png", TASK)
    with pytest.raises(InputError, match="more than 67,108,864 pixels"):
        from_line(LabelledImage, json.dumps({"pixels": b64encode(bomb(side)).decode(), "label": "a", "name": "b"}))


def animation(side: int, count: int) -> bytes:
    """A GIF that changes one of side x side pixels from image to image, which takes 23 bytes each."""
    begin = b"GIF89a" + struct.pack("<HHBBB", side, side, 0x80, 0, 0) + bytes(3) + b"\xff" * 3
    change = b"\x21\xf9\x04\x04\x01\0\0\0" + b"\x2c" + struct.pack("<HHHHB", 0, 0, 1, 1, 0)
    return begin + b"".join(change + bytes([2, 2, 0x44 + number % 2 * 8, 1, 0]) for number in range(count)) + b"\x3b"


def test_an_animation_that_unpacks_to_very_many_pixels_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.gif").write_bytes(animation(8_000, 40))
    with pytest.raises(
        InputError, match=r"a\.gif: has 40 images of 8000 x 8000 pixels: a film has at most 2,147,483,648"
    ):
        read_film(tmp_path / "a.gif", TASK, 8)
    (tmp_path / "b.gif").write_bytes(animation(80, 40))
    assert len(read_film(tmp_path / "b.gif", TASK, 8)) == 8


@pytest.mark.parametrize("side", [8_200, 20_000])  # more than we read, more than Pillow would
def test_a_page_that_is_larger_than_the_first_is_no_way_around(side: int, tmp_path: Path) -> None:
    pages = [Image.new("1", (side, side))]
    Image.new("1", (16, 16)).save(tmp_path / "a.tif", save_all=True, append_images=pages, compression="group4")
    with pytest.raises(InputError, match=r"a\.tif: has more than 67,108,864 pixels: make it smaller"):
        read_film(tmp_path / "a.tif", TASK, 2)


def test_an_image_that_another_program_would_read_is_refused(tmp_path: Path) -> None:
    Image.new("RGB", (4, 4)).save(tmp_path / "a.eps")
    (tmp_path / "a.eps").rename(tmp_path / "a.png")
    with pytest.raises(InputError, match=r"a\.png: is no image of a known format"):
        pixels_of(tmp_path / "a.png", TASK)


def test_a_pipe_is_no_image(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.png")
    with pytest.raises(InputError, match=r"a\.png: is a pipe"):
        pixels_of(tmp_path / "a.png", TASK)
