"""Captions of images in files: one JSON object per line, with an image, or the images of a film, and its captions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from glassformer.data.examples import Captioned
from glassformer.data.report import Report
from glassformer.data.source import SPLITS, FileSource, Found, Split
from glassformer.data.sources.labelled import IMAGES
from glassformer.data.textfiles import first_lines, look_up, texts

MOST_FRAMES = 10_000  # images of a film


class CaptionsSource(FileSource):
    """One JSON object per line: an image file, as a path from the file's folder, and its caption, or a list of them.

    A list of image files is a film; an animation is one, too.
    """

    gives = Captioned
    endings = (".jsonl", ".ndjson")
    kind: Literal["captions"]
    image: str = Field("image", description="the name of the image file, or of a film's image files")
    caption: str = Field("caption", description="the name of the caption, or of several")

    @classmethod
    def recognised(cls, paths: Sequence[Path]) -> dict[str, Any] | None:
        """Objects with the name of an image file, or several, and a text beside it, or several."""
        found = super().recognised(paths)
        try:
            row = None if found is None else json.loads(first_lines(paths[0], 1)[0])
        except (ValueError, RecursionError, IndexError):
            row = None
        listed = {name: _listed(value) for name, value in row.items()} if isinstance(row, dict) else {}
        images = [name for name, values in listed.items() if values and all(map(_is_image, values))]
        others = [name for name, values in listed.items() if values and name not in images]
        if found is None or not images or not others:
            return None
        return found | {"image": images[0], "caption": "caption" if "caption" in others else others[0]}

    def read(self, split: Split, base: Path, report: Report) -> Iterator[Found]:
        """Each image, unread, and its captions; an image that several lines name comes once for each."""
        name: str = getattr(self, split)
        folder = (base / name).parent
        for place, text in texts(base / name, name, report):
            try:
                row = json.loads(text)
            except (ValueError, RecursionError):  # ValueError: also a number of too many digits
                report.add_bad("not JSON", place, "is not a JSON object")
                continue
            images, captions = (_listed(look_up(row, field)) for field in (self.image, self.caption))
            if not images or not captions:
                missing = self.caption if images else self.image
                report.add_bad("missing field", place, f"has no text, and no list of texts, under {missing}")
            elif len(images) > MOST_FRAMES:
                report.add_bad("film too long", place, f"has {len(images):,} images: at most {MOST_FRAMES:,} are read")
            else:
                yield Captioned(tuple(folder / each for each in images), tuple(captions), images[0]), place

    def versions(self, base: Path) -> dict[str, Any]:
        """Pillow's, and the name, size and time of each image."""
        stamps = []
        for split in SPLITS:
            found = self.read(split, base, Report()) if getattr(self, split) is not None else ()
            stamps += [_stamp(path) for (images, _, _), _ in found for path in images]
        return {"pillow": version("pillow"), "images": stamps}


def _listed(value: Any) -> list[str]:
    """A text, or a list of texts, as a list; nothing, if it is neither."""
    values = value if isinstance(value, list) else [value]
    return values if all(isinstance(each, str) and each.strip() for each in values) else []


def _is_image(text: str) -> bool:
    return Path(text).suffix.lower() in IMAGES


def _stamp(path: Path) -> tuple[str, int, int]:
    """What tells whether a file has changed; one that is not there has none."""
    try:
        fact = path.stat()
    except (OSError, ValueError):
        return str(path), 0, 0
    return str(path), fact.st_size, fact.st_mtime_ns
